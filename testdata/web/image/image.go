// Package image packs the sample program into its image.
package image

import (
	"io"
	"io/fs"
	"os"

	"monopod/agent/runtime/oci"
)

// Name is the name of the sample image.
const Name = "monopod.local/web:1"

// Arch is the name of an environment variable with the GOARCH of images for other machines.
const Arch = "IMAGE_ARCH"

// Write writes an archive with one image: the program is its entry point /web, and /tmp is empty.
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
