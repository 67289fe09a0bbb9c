// Command compress writes what the program contains to standard output, compressed: the files that it is given as an
// archive, or else standard input. The same files give the same bytes.
package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if err := compress(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compress:", err)
		os.Exit(1)
	}
}

func compress(w io.Writer, files []string) error {
	to, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(32<<20))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		_, err = io.Copy(to, os.Stdin)
	} else {
		err = archive(to, files)
	}
	return errors.Join(err, to.Close())
}

func archive(w io.Writer, files []string) error {
	to := tar.NewWriter(w)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.Base(file), Mode: 0o755, Size: int64(len(content))}
		if err := to.WriteHeader(header); err != nil {
			return err
		}
		if _, err := to.Write(content); err != nil {
			return err
		}
	}
	return to.Close()
}
