//go:build !bundled

package containerd

// bundle is empty: this program was built without the runtime (`make build-lean`).
var bundle []byte
