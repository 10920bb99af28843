#!/bin/sh
# What every script here takes for granted, so that the settings of a machine do not matter.
# Each line is a `sysctl` or a `tc` that both Linux and the runner understand.

sysctl -q net.ipv4.tcp_rmem="4096 131072 6291456"
sysctl -q net.ipv4.tcp_wmem="4096 16384 4194304"
sysctl -q net.ipv4.tcp_timestamps=1
sysctl -q net.ipv4.tcp_sack=1
sysctl -q net.ipv4.tcp_dsack=1
sysctl -q net.ipv4.tcp_window_scaling=1
sysctl -q net.ipv4.tcp_ecn=0
sysctl -q net.ipv4.tcp_fastopen=0
sysctl -q net.ipv4.tcp_recovery=1
sysctl -q net.ipv4.tcp_early_retrans=3
sysctl -q net.ipv4.tcp_frto=2
sysctl -q net.ipv4.tcp_reordering=3
sysctl -q net.ipv4.tcp_syn_retries=6
sysctl -q net.ipv4.tcp_synack_retries=5
sysctl -q net.ipv4.tcp_syn_linear_timeouts=4
sysctl -q net.ipv4.tcp_retries2=15
sysctl -q net.ipv4.tcp_slow_start_after_idle=1
sysctl -q net.ipv4.tcp_invalid_ratelimit=500

# A queue that paces would move segments in time.
tc qdisc add dev tun0 root pfifo
