// Package join makes this machine a node of another machine's API server, like kubeadm join.
//
//   - identity.go: the node's certificate, key, authority and servers in the data folder
//   - bootstrap.go: checks the server's authority, and requests the first certificate with a bootstrap token
//   - renew.go: requests a new certificate before the old one expires
//   - servers.go: sends requests to the first server that answers
//   - leave.go: deletes the Node of this machine
//   - tunnel.go: connections over which the servers reach the kubelet's API, even if this machine is behind NAT
package join
