package pull

import (
	"errors"

	"github.com/distribution/reference"

	"monopod/agent/runtime/oci"
)

// Imported tells the result of an import, so that pods that wait for an image learn why its archive does not provide
// it.
func (p *Puller) Imported(names []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		delete(p.refused, full(name))
	}
	if wrong := (*oci.WrongPlatform)(nil); errors.As(err, &wrong) {
		if p.refused == nil {
			p.refused = map[string]string{}
		}
		for _, name := range wrong.Names {
			p.refused[full(name)] = wrong.Mismatch()
		}
	}
}

// refusal returns why an imported archive does not provide the image, as the beginning of a message; empty: there was
// none.
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
