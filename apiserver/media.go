package apiserver

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
)

const (
	typeJSON     = "application/json"
	typeYAML     = "application/yaml"
	typeProtobuf = "application/vnd.kubernetes.protobuf"
	typeForm     = "application/x-www-form-urlencoded" // what curl -d says

	// typicalAccept is what typed clients send.
	typicalAccept = typeProtobuf + "," + typeJSON
)

// format is how a client wants to be answered.
type format struct {
	media string // typeYAML or typeProtobuf; empty: JSON
	// contentType is what the answer calls itself; empty: as media says.
	contentType string
	as          string // "", "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"
}

// header is the answer's Content-Type.
func (f format) header() string { return cmp.Or(f.contentType, f.media, typeJSON) }

// shapes are those that have a version of their own.
func shapeVersion(as string) schema.GroupVersion {
	if as == aggregated {
		return apidiscovery.SchemeGroupVersion
	}
	return metav1.SchemeGroupVersion
}

// negotiate takes the media type of the Accept header that the client likes
// best of those that are served; JSON when there is no header. as lists the
// shapes that this request can have.
func negotiate(r *http.Request, as ...string) (format, error) {
	return choose(r.Header.Get("Accept"), false, as)
}

// negotiateWrite is negotiate for a request that writes, which has to know how
// to answer before it does.
func negotiateWrite(r *http.Request) (format, error) {
	return negotiate(r, "Table", "PartialObjectMetadata")
}

// negotiateStream is negotiate for a watch, which has no form in YAML.
func negotiateStream(r *http.Request) (format, error) {
	return choose(r.Header.Get("Accept"), true, []string{"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
}

func choose(accept string, stream bool, as []string) (format, error) {
	switch accept {
	case "", typeJSON, "*/*":
		return format{}, nil
	case typeProtobuf, typicalAccept:
		return format{media: typeProtobuf}, nil
	}
	for _, c := range clauses(accept) {
		if f, ok := c.format(as); ok && (!stream || f.media != typeYAML) {
			return f, nil
		}
	}
	return format{}, errNotAcceptable(stream)
}

func errNotAcceptable(stream bool) error {
	accepted := typeJSON + ", " + typeYAML + ", " + typeProtobuf
	if stream {
		accepted = typeJSON + ";stream=watch, " + typeProtobuf + ";stream=watch"
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

// clauses are the parts of an Accept header, the best liked first; those of
// equal quality keep their order.
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

// format is how the clause wants it; false when that is not served.
func (c clause) format(as []string) (format, bool) {
	f := format{as: c.params["as"]}
	if f.as != "" {
		want := shapeVersion(f.as)
		if !slices.Contains(as, f.as) || cmp.Or(c.params["v"], want.Version) != want.Version || cmp.Or(c.params["g"], want.Group) != want.Group {
			return f, false
		}
	}
	if stream := c.params["stream"]; stream != "" && stream != "watch" {
		return f, false
	}
	switch c.media {
	case typeJSON, "*/*", "application/*":
		return f, true
	case typeYAML, "text/yaml":
		f.media = typeYAML
		return f, f.as == ""
	case typeProtobuf:
		f.media = typeProtobuf
		return f, f.as != "Table" // whose cells are anything
	}
	return f, false
}
