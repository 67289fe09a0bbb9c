package codec

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/kind"
)

// The media types.
const (
	TypeJSON         = "application/json"
	TypeYAML         = "application/yaml"
	TypeProtobuf     = "application/vnd.kubernetes.protobuf"
	TypeCBOR         = "application/cbor"
	TypeCBORSequence = "application/cbor-seq"              // of a watch
	typeForm         = "application/x-www-form-urlencoded" // the Content-Type of curl -d

	// TypicalAccept is the Accept header of typed clients.
	TypicalAccept = TypeProtobuf + "," + TypeJSON
)

// Format is the format of a response.
type Format struct {
	Media string // TypeYAML, TypeProtobuf or TypeCBOR; empty: JSON
	// ContentType overrides the response's Content-Type; empty: Media
	ContentType string
	As          string // "", "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"
	// Shape is the version of As; empty: none.
	Shape schema.GroupVersion
}

// Header returns the response's Content-Type.
func (f Format) Header() string { return cmp.Or(f.ContentType, f.Media, TypeJSON) }

// shapeVersions returns the versions in which a shape is served, the preferred one first.
func shapeVersions(as string) []schema.GroupVersion {
	if as == Aggregated {
		return []schema.GroupVersion{apidiscovery.SchemeGroupVersion}
	}
	return []schema.GroupVersion{metav1.SchemeGroupVersion, {Group: metav1.GroupName, Version: "v1beta1"}}
}

// Negotiate returns the supported format in the Accept header with the highest quality, or JSON without a header. as
// lists the shapes that the request supports.
func Negotiate(r *http.Request, as ...string) (Format, error) {
	return choose(r.Header.Get("Accept"), false, as)
}

// NegotiateWrite is NegotiateAnswer for a write, which must fail before it changes anything.
func NegotiateWrite(r *http.Request, res *kind.Resource) (Format, error) {
	return NegotiateAnswer(r, res, "Table", "PartialObjectMetadata")
}

// NegotiateStream is NegotiateAnswer for a watch, which cannot be sent as YAML.
func NegotiateStream(r *http.Request, res *kind.Resource) (Format, error) {
	return negotiate(r, res, true, []string{"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
}

func choose(accept string, stream bool, as []string) (Format, error) {
	switch accept {
	case "", TypeJSON, "*/*":
		return Format{}, nil
	case TypeProtobuf, TypicalAccept:
		return Format{Media: TypeProtobuf}, nil
	}
	for _, c := range clauses(accept) {
		if f, ok := c.format(as); ok && (!stream || f.Media != TypeYAML) && (stream || c.media != TypeCBORSequence) {
			return f, nil
		}
	}
	return Format{}, errNotAcceptable(stream)
}

func errNotAcceptable(stream bool) error {
	accepted := TypeJSON + ", " + TypeYAML + ", " + TypeProtobuf + ", " + TypeCBOR
	if stream {
		accepted = TypeJSON + ";stream=watch, " + TypeProtobuf + ";stream=watch, " + TypeCBORSequence
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + accepted,
	}}
}

// clause is one part of an Accept header.
type clause struct {
	media   string
	params  map[string]string
	quality float64
}

// clauses parses an Accept header, highest quality first; parts of equal quality keep their order.
func clauses(accept string) []clause {
	var out []clause
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		c := clause{media: media, params: params, quality: 1}
		if q, ok := params["q"]; ok {
			if c.quality, err = strconv.ParseFloat(q, 64); err != nil || c.quality <= 0 {
				continue
			}
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b clause) int { return cmp.Compare(b.quality, a.quality) })
	return out
}

// format returns the clause's format. It returns false if the format is not supported.
func (c clause) format(as []string) (Format, bool) {
	f := Format{As: c.params["as"]}
	if f.As != "" {
		versions := shapeVersions(f.As)
		at := slices.IndexFunc(versions, func(gv schema.GroupVersion) bool {
			return cmp.Or(c.params["v"], gv.Version) == gv.Version && cmp.Or(c.params["g"], gv.Group) == gv.Group
		})
		if at < 0 || !slices.Contains(as, f.As) {
			return f, false
		}
		f.Shape = versions[at]
	}
	if stream := c.params["stream"]; stream != "" && stream != "watch" {
		return f, false
	}
	switch c.media {
	case TypeJSON, "*/*", "application/*":
		return f, true
	case TypeYAML, "text/yaml":
		f.Media = TypeYAML
		return f, f.As == ""
	case TypeCBOR, TypeCBORSequence:
		f.Media = TypeCBOR
		return f, true
	case TypeProtobuf:
		f.Media = TypeProtobuf
		return f, f.As != "Table" // its cells have no fixed type
	}
	return f, false
}

// NegotiateAnswer is Negotiate for a kind that may not support protobuf. A client that also accepts another type gets
// that type, as for custom resources upstream.
func NegotiateAnswer(r *http.Request, res *kind.Resource, as ...string) (Format, error) {
	return negotiate(r, res, false, as)
}

func negotiate(r *http.Request, res *kind.Resource, stream bool, as []string) (Format, error) {
	f, err := choose(r.Header.Get("Accept"), stream, as)
	if err != nil || f.Media != TypeProtobuf || f.As != "" || hasProtobuf(res) {
		return f, err
	}
	rest := slices.DeleteFunc(clauses(r.Header.Get("Accept")), func(c clause) bool { return c.media == TypeProtobuf })
	for _, c := range rest {
		if other, ok := c.format(as); ok && (!stream || other.Media != TypeYAML) {
			return other, nil
		}
	}
	return f, errNotAcceptable(stream)
}

// hasProtobuf reports whether objects of the resource have a protobuf form.
func hasProtobuf(res *kind.Resource) bool {
	switch {
	case res.Schema != nil:
		return false
	case res.Stored():
		return true
	}
	_, ok := res.New().(ProtobufMessage)
	return ok
}

// Preferred returns the offer that the client prefers, or an empty string if it accepts none.
func Preferred(accept string, offers ...string) string {
	if accept == "" {
		return offers[0]
	}
	for _, c := range clauses(strings.ReplaceAll(accept, "@", ".")) {
		for _, offer := range offers {
			if c.media == offer || c.media == "*/*" || c.media == "application/*" {
				return offer
			}
		}
	}
	return ""
}

// Aggregated is the shape of aggregated discovery.
const Aggregated = "APIGroupDiscoveryList"
