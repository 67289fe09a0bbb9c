// A runtime silently ignores requests for features that it does not have, so abilities are derived from its version.

package runtime

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Abilities are the features that pods may use.
type Abilities struct {
	Images        bool // image volumes: containerd 2.1
	ImageSubPaths bool // their subPaths: containerd 2.2
	// CDI devices: containerd 2.0. containerd 1.7 does not report whether CDI is enabled, so package cdi edits the
	// container for it and for older versions.
	CDI bool
}

// AbilitiesOf returns the abilities of a runtime by its version. An unknown version has none, the fake runtime has all.
func AbilitiesOf(v *cri.VersionResponse) Abilities {
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

// MountsImages returns an error if the runtime cannot mount images: the mount would
// be an empty folder.
func MountsImages(v *cri.VersionResponse) error {
	if AbilitiesOf(v).Images {
		return nil
	}
	return fmt.Errorf("%s %s cannot mount images, containerd 2.1 and later can", v.GetRuntimeName(), v.GetRuntimeVersion())
}

// MountsImageFolders returns an error if the runtime cannot mount a folder of an
// image: the mount would be the whole image.
func MountsImageFolders(v *cri.VersionResponse) error {
	if AbilitiesOf(v).ImageSubPaths {
		return nil
	}
	return fmt.Errorf("%s %s cannot mount a folder of an image, containerd 2.2 and later can", v.GetRuntimeName(),
		v.GetRuntimeVersion())
}
