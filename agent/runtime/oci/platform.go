package oci

import (
	"fmt"
	"strings"
)

// WrongPlatform is the error of images in an archive that are built for other machines.
type WrongPlatform struct {
	Names         []string // of the images
	Has           []string // architectures, as arm64 or arm/v7
	Machine       string   // its architecture
	OthersArrived bool     // the archive's other images were imported
}

// Error implements error.
func (e *WrongPlatform) Error() string {
	text := fmt.Sprintf("image %s is built for %s", strings.Join(e.Names, ", "), e.Mismatch())
	if e.OthersArrived {
		text += "; the other images of the archive were imported"
	}
	return text
}

// Mismatch returns the architectures of the images and of the machine, as a phrase.
func (e *WrongPlatform) Mismatch() string {
	return fmt.Sprintf("%s, this machine is %s", strings.Join(e.Has, ", "), e.Machine)
}
