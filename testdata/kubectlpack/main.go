// Command kubectlpack compresses kubectl for `make build TAGS=kubectl`: standard input to standard output.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if err := pack(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pack() error {
	to, err := zstd.NewWriter(os.Stdout, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	_, err = io.Copy(to, os.Stdin)
	return errors.Join(err, to.Close())
}
