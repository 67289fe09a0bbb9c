// Command pack writes the sample image of the built sample program:
//
//	CGO_ENABLED=0 go build -o bin/web ./testdata/web
//	go run ./testdata/web/pack -program bin/web -o bin/web.tar
//
// IMAGE_ARCH is the GOARCH of the image if it is for another machine.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"monopod/testdata/web/image"
)

func main() {
	program := flag.String("program", "bin/web", "the static program")
	name := flag.String("name", image.Name, "name of the image, with domain and tag")
	out := flag.String("o", "bin/web.tar", "the archive to write")
	flag.Parse()
	if err := pack(*program, *name, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pack writes a temporary file and renames it, so that a watched folder contains only complete files.
func pack(program, name, out string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := image.Write(&archive, name, data); err != nil {
		return err
	}
	if err := os.WriteFile(out+".tmp", archive.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(out+".tmp", out)
}
