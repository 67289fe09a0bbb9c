package pull

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
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
	text := fmt.Sprintf("image %s is built for %s", strings.Join(e.Names, ", "), e.mismatch())
	if e.OthersArrived {
		text += "; the other images of the archive were imported"
	}
	return text
}

func (e *WrongPlatform) mismatch() string {
	return fmt.Sprintf("%s, this machine is %s", strings.Join(e.Has, ", "), e.Machine)
}

// Imported tells the result of an import, so that pods that wait for an image learn why its archive does not provide it.
func (p *Puller) Imported(names []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		delete(p.refused, full(name))
	}
	if wrong := (*WrongPlatform)(nil); errors.As(err, &wrong) {
		if p.refused == nil {
			p.refused = map[string]string{}
		}
		for _, name := range wrong.Names {
			p.refused[full(name)] = wrong.mismatch()
		}
	}
}

// refusal returns why an imported archive does not provide the image, as the beginning of a message; empty: there was none.
func (p *Puller) refusal(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why := p.refused[full(name)]; why != "" {
		return "the archive that was imported is built for " + why + "; "
	}
	return ""
}

// full returns a name with registry and tag.
func full(name string) string {
	if ref, err := reference.ParseDockerRef(name); err == nil {
		return ref.String()
	}
	return name
}
