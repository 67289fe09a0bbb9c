package why

import (
	"strings"

	"monopod/apiserver/client/why/words"
)

// pullFailure is a kind of failure of a pull, by words of its message.
type pullFailure struct {
	words        []string // any of them
	sentence, do string
}

// pullFailures are in the order in which they are looked for: a message may contain several.
func pullFailures() []pullFailure {
	return []pullFailure{
		{[]string{"pull access denied", "insufficient_scope", "401 unauthorized", "403 forbidden", "unauthorized", "no basic auth credentials", "authorization failed", "failed to authorize", "authentication required"},
			"the registry refuses access without other credentials, or the repository does not exist",
			"Name a Secret of type kubernetes.io/dockerconfigjson in imagePullSecrets, write credentials to config.json in the data folder, or correct the name."},
		{[]string{"toomanyrequests", "429 too many requests"}, "the registry limits the number of pulls, and the limit is reached", "Wait, log in to the registry (imagePullSecrets), or use a mirror (containerd/certs.d)."},
		{[]string{"no such host", "server misbehaving", "temporary failure in name resolution"}, "the name of the registry cannot be resolved", "Check the network, DNS and the spelling; without a network, copy the image as a tar file to images/ in the data folder."},
		{[]string{"connection refused", "network is unreachable", "no route to host", "i/o timeout", "deadline exceeded", "connection reset"}, "the registry cannot be reached", "Check the network and the registry; without them, copy the image as a tar file to images/ in the data folder."},
		{[]string{"server gave http response to https client"}, "the registry speaks HTTP, and HTTPS is required", "Allow HTTP for it in containerd/certs.d/REGISTRY/hosts.toml of the data folder."},
		{[]string{"x509:", "certificate"}, "the certificate of the registry is not trusted", "Put its authority into containerd/certs.d/REGISTRY of the data folder, or into the machine's certificates."},
		{[]string{"no match for platform", "no matching manifest"}, "the image exists, but not for this machine's processor", "Use an image that is built for this processor."},
		{[]string{"no space left"}, "the disk of the node is full", "Free space on the disk; unused images are removed when it is nearly full."},
		{[]string{"not found", "manifest unknown", "name unknown", "notfound"}, "the registry does not have it", "Correct the name or the tag, or push the image; the node tries again by itself, at the latest after five minutes."},
	}
}

// noImage explains a container without an image.
func (c container) noImage(reason, message string) *Answer {
	evidence := append([]string{words.Reason(reason, message)}, c.events()...)
	switch reason {
	case "InvalidImageName":
		return c.found("Correct the name: [REGISTRY/]NAME[:TAG], in lower case.", evidence, "does not start: %q is not a valid name of an image", c.spec.Image)
	case "ErrImageNeverPull":
		return c.found("Copy the image as a tar file to images/ in the data folder, or set imagePullPolicy: IfNotPresent.", evidence, "does not start: the image %q is not on the node, and imagePullPolicy is Never", c.spec.Image)
	}
	text := strings.ToLower(message)
	if !strings.Contains(message, ": ") { // only the back-off: the event has the cause
		if e := c.last(c.pod, "Failed to pull image", "Failed"); e != nil {
			text = strings.ToLower(e.Message)
		}
	}
	for _, f := range pullFailures() {
		for _, w := range f.words {
			if strings.Contains(text, w) {
				return c.found(f.do, evidence, "does not start: the image %q cannot be pulled, because %s", c.spec.Image, f.sentence)
			}
		}
	}
	return c.found("Read the message; kubectl delete pod tries again at once.", evidence, "does not start: the image %q cannot be pulled: %s", c.spec.Image, words.Clip(message))
}
