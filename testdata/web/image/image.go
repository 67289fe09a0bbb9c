// Package image packs the sample program into its image.
package image

import (
	"io"
	"io/fs"
	"os"

	"monopod/agent/runtime/oci"
)

// Name is the sample image's.
const Name = "monopod.local/web:1"

// Arch names an environment variable with the processor of images that are not for this machine, a GOARCH.
const Arch = "IMAGE_ARCH"

// Write writes an archive that holds one image of that name: the program as its
// entry point /web, and an empty /tmp.
func Write(w io.Writer, name string, program []byte) error {
	return oci.Archive(w, oci.Image{
		Ref: name,
		Files: []oci.File{
			{Path: "web", Mode: 0o755, Data: program},
			{Path: "tmp", Mode: fs.ModeDir | 0o777},
		},
		Entrypoint:   []string{"/web"},
		Env:          []string{"PATH=/"},
		WorkingDir:   "/",
		ExposedPorts: []string{"8080/tcp"},
		StopSignal:   "SIGTERM",
		Arch:         os.Getenv(Arch),
	})
}
