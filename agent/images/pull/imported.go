package pull

import (
	"errors"

	"monopod/agent/runtime/oci"
)

// Imported records the result of an import, so that the status of pods that wait for an image contains the reason why
// its archive does not provide it.
func (p *Puller) Imported(names []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		delete(p.importErrors, repositoryTag(name))
	}
	if wrong := (*oci.WrongPlatform)(nil); errors.As(err, &wrong) {
		if p.importErrors == nil {
			p.importErrors = map[string]string{}
		}
		for _, name := range wrong.Names {
			p.importErrors[repositoryTag(name)] = wrong.Mismatch()
		}
	}
}

// importError returns the reason why an imported archive does not provide the image, as the beginning of a message;
// empty: there is none.
func (p *Puller) importError(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why := p.importErrors[repositoryTag(name)]; why != "" {
		return "the archive that was imported is built for " + why + "; "
	}
	return ""
}
