// Package images defines the API of a running node's images.
package images

// Path is the API server's path of its node's images, for admins:
//
//	GET                       a List
//	GET ?downloads            Downloads: what is being pulled
//	GET ?save=NAME&save=…     these images as an OCI archive
//	POST ?pull=NAME           pulls; answers with the Image
//	POST                      imports the archive in the body; answers with Imported
//	DELETE ?name=NAME&name=…  removes; &force=true also images in use
const Path = "/monopod/images"

// Archive is the media type of an archive.
const Archive = "application/x-tar"

// Image is one image of the node.
type Image struct {
	ID      string   `json:"id"`
	Names   []string `json:"names"`   // with tags, or with digests if it has no tags
	Bytes   int64    `json:"bytes"`   // on the disk
	Pinned  bool     `json:"pinned"`  // no garbage collection removes it
	Users   []string `json:"users"`   // pods with containers of the image, as namespace/name
	Running bool     `json:"running"` // one of the containers is running
}

// Download is a part of an image that is being pulled.
type Download struct {
	Ref   string `json:"ref"` // names the part while it is pulled
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // in bytes; 0: not known
}

// Downloads is the answer to GET ?downloads.
type Downloads struct {
	Downloads []Download `json:"downloads"` // of all pulls: the runtime does not say which belongs to which
	Pulls     []string   `json:"pulls"`     // the images, sorted
}

// List is the answer to GET.
type List struct {
	Images []Image `json:"images"`
}

// Imported is the answer to an import.
type Imported struct {
	Names []string `json:"names"`
}
