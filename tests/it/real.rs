//! What only a real Kubernetes can show: the same scenarios on a real control plane, which also proves
//! the stand-in, and Pods on a real kubelet. `tests/real.sh` starts the cluster and runs these.

mod apiserver;
mod cluster;
mod life;
mod pods;
mod rights;
mod standin;
