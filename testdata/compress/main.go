// Command compress writes a compressed tar archive of its arguments, or compressed standard input without arguments, to
// standard output. monopod embeds the result. The same input gives the same output.
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
