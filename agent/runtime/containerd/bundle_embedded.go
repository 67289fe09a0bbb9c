//go:build bundled

package containerd

import _ "embed" // the programs

// bundle is an archive (tar, zstd) of containerd, containerd-shim-runc-v2 and runc: `make build` puts it here.
//
//go:embed runtime.tar.zst
var bundle []byte
