// Package abilities is what a runtime can do of what CRI has no words to ask for:
// one that cannot leaves it out without a word, so only its version tells.
package abilities

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Abilities are what pods may ask for.
type Abilities struct {
	Images        bool // volumes that show an image: containerd 2.1
	ImageSubPaths bool // folders of such alone: containerd 2.2
	CDI           bool // devices that device plugins name by CDI: containerd 2.0; 1.7 where it is switched on, which it does not tell
}

// Of a runtime by its version; of one that cannot be read nothing is believed. The
// fake runtime can all of it.
func Of(v *cri.VersionResponse) Abilities {
	if v.GetRuntimeName() != "containerd" {
		return Abilities{Images: true, ImageSubPaths: true, CDI: true}
	}
	is, err := version.ParseGeneric(v.GetRuntimeVersion())
	if err != nil {
		return Abilities{}
	}
	from := func(major, minor uint) bool { return is.AtLeast(version.MajorMinor(major, minor)) }
	return Abilities{Images: from(2, 1), ImageSubPaths: from(2, 2), CDI: from(2, 0)}
}

// MountsImages says why a runtime cannot mount images, if it cannot: it would show
// an empty folder.
func MountsImages(v *cri.VersionResponse) error {
	if Of(v).Images {
		return nil
	}
	return fmt.Errorf("%s %s cannot mount images, containerd 2.1 and later can", v.GetRuntimeName(), v.GetRuntimeVersion())
}

// MountsImageFolders says why a runtime cannot mount one folder of an image, if it
// cannot: it would show the whole image.
func MountsImageFolders(v *cri.VersionResponse) error {
	if Of(v).ImageSubPaths {
		return nil
	}
	return fmt.Errorf("%s %s cannot mount a folder of an image, containerd 2.2 and later can", v.GetRuntimeName(), v.GetRuntimeVersion())
}
