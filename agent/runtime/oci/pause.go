package oci

import (
	_ "embed"
	"fmt"
	"runtime"
)

// PauseRef is the name of the sandbox image. A new program needs a new tag, because an existing image is not replaced;
// the tag 2 was used by an earlier version.
const PauseRef = "monopod.local/pause:1"

//go:embed pause/pause_amd64
var pauseAMD64 []byte

//go:embed pause/pause_arm64
var pauseARM64 []byte

//go:embed pause/pause_arm
var pauseARM []byte

//go:embed pause/pause_riscv64
var pauseRISCV64 []byte

// Pause returns the sandbox image for this machine under the name ref; empty: PauseRef. It returns an error on machines
// that no release is made for.
func Pause(ref string) (Image, error) {
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		return Image{}, err
	}
	if ref == "" {
		ref = PauseRef
	}
	return Image{
		Ref:        ref,
		Files:      []File{{Path: "pause", Mode: 0o755, Data: program}},
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
	}, nil
}

func pauseProgram(arch string) ([]byte, error) {
	switch arch {
	case "amd64":
		return pauseAMD64, nil
	case "arm64":
		return pauseARM64, nil
	case "arm":
		return pauseARM, nil
	case "riscv64":
		return pauseRISCV64, nil
	default:
		return nil, fmt.Errorf("no pause program for %s", arch)
	}
}
