package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/webhook"
)

const (
	// callTime is the timeout of one call of a conversion webhook (upstream: the same).
	callTime = 30 * time.Second
	// A call converts at most maxObjects objects of maxBytes in total, or a single larger object.
	maxObjects = 500
	maxBytes   = 2 << 20
	// maxCalls is the maximum number of concurrent calls of a webhook.
	maxCalls = 32
)

// conversionWebhook converts the objects of one definition.
type conversionWebhook struct {
	spec     *apiextensionsv1.CustomResourceConversion
	version  string // of ConversionReview that both the webhook and this server support
	client   *webhook.Client
	slots    chan struct{}      // semaphore of running calls
	inFlight singleflight.Group // conversions of single objects
	memory   *conversionCache
}

// webhook returns the conversion webhook of a definition; nil: it has none. An unchanged webhook keeps its connections.
func (k *Kinds) webhook(def *Definition) *conversionWebhook {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.webhooks[def.Name]
	spec := def.Spec.Conversion
	if spec != nil && known != nil && equality.Semantic.DeepEqual(known.spec, spec) {
		return known
	}
	k.closeWebhook(def.Name)
	if spec == nil || spec.Strategy != apiextensionsv1.WebhookConverter || spec.Webhook == nil ||
		spec.Webhook.ClientConfig == nil {
		return nil
	}
	c := spec.Webhook.ClientConfig
	w := &conversionWebhook{spec: spec, memory: &k.conversions, slots: make(chan struct{}, maxCalls),
		client: webhook.New(webhook.TargetOf(c.URL, (*admissionv1.ServiceReference)(c.Service), c.CABundle), k.network)}
	for _, version := range spec.Webhook.ConversionReviewVersions {
		if version == "v1" || version == "v1beta1" { // both have the same fields
			w.version = version
			break
		}
	}
	k.webhooks[def.Name] = w
	return w
}

// closeWebhook closes the webhook of a definition. The caller must hold mu.
func (k *Kinds) closeWebhook(definition string) {
	if w := k.webhooks[definition]; w != nil {
		w.client.Close()
		delete(k.webhooks, definition)
	}
}

// Forget releases the resources of a definition that no longer exists.
func (k *Kinds) Forget(definition string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closeWebhook(definition)
}

// conversion implements kind.Converter for a served version by the definition's webhook.
type conversion struct{ v, storage *Version }

var _ kind.Converter = conversion{}

// Show implements kind.Converter. The cache of conversions keeps its results (upstream: a cache for each version).
func (c conversion) Show(ctx context.Context, stored []kind.Object) ([]kind.Object, error) {
	out := make([]kind.Object, len(stored))
	var missing []*Object
	var places []int
	for i, obj := range stored {
		o := obj.(*Object)
		if !c.v.needsConversion(o) {
			out[i] = c.v.show(o)
		} else if as := o.convertedTo(c.v); as != nil {
			out[i] = as
		} else {
			missing, places = append(missing, o), append(places, i)
		}
	}
	if len(missing) == 1 {
		obj, err := c.v.convertOnce(ctx, missing[0])
		if err != nil {
			return nil, err
		}
		out[places[0]] = obj
		return out, nil
	}
	converted, err := c.v.convert(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i, obj := range converted {
		c.v.webhook.memory.add(missing[i], c.v, obj)
		out[places[i]] = obj
	}
	return out, nil
}

// Convert implements kind.Converter.
func (c conversion) Convert(ctx context.Context, obj kind.Object) (kind.Object, error) {
	return c.v.convertMutable(ctx, obj.(*Object))
}

// Store implements kind.Converter.
func (c conversion) Store(ctx context.Context, shown kind.Object) (kind.Object, error) {
	return c.storage.convertMutable(ctx, shown.(*Object))
}

// convertMutable converts an object that may still change to this version, without the cache.
func (v *Version) convertMutable(ctx context.Context, o *Object) (kind.Object, error) {
	if !v.needsConversion(o) {
		return v.show(o), nil
	}
	out, err := v.convert(ctx, []*Object{o})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// convertOnce converts a stored object. Concurrent callers share one call.
func (v *Version) convertOnce(ctx context.Context, o *Object) (*Object, error) {
	flight := v.webhook.inFlight.DoChan(fmt.Sprintf("%s %p", v.name, o), func() (any, error) {
		if as := o.convertedTo(v); as != nil {
			return as, nil
		}
		out, err := v.convert(context.WithoutCancel(ctx), []*Object{o})
		if err != nil {
			return nil, err
		}
		v.webhook.memory.add(o, v, out[0])
		return out[0], nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-flight:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*Object), nil
	}
}

// needsConversion reports whether the webhook must convert an object to this version. For an object without content a
// new apiVersion is sufficient (upstream: isEmptyUnstructuredObject).
func (v *Version) needsConversion(o *Object) bool {
	return o.APIVersion != v.apiVersion && (len(o.members) > 0 || o.Name != "" || o.GenerateName != "")
}

// withAPIVersion returns an object with the version's apiVersion but unconverted content.
func (v *Version) withAPIVersion(o *Object) *Object {
	if o.APIVersion == v.apiVersion {
		return o
	}
	out := o.DeepCopyObject().(*Object)
	out.APIVersion, out.version = v.apiVersion, nil
	return out
}

// convert converts objects of other versions by the webhook, in as few calls as the limits allow.
func (v *Version) convert(ctx context.Context, in []*Object) ([]*Object, error) {
	out := make([]*Object, 0, len(in))
	for len(in) > 0 {
		var batch []runtime.RawExtension
		size := 0
		for _, o := range in {
			data, err := json.Marshal(v.withOwnDefaults(o))
			if err != nil {
				return nil, err
			}
			if len(batch) > 0 && size+len(data) > maxBytes || len(batch) == maxObjects {
				break
			}
			batch, size = append(batch, runtime.RawExtension{Raw: data}), size+len(data)
		}
		answers, err := v.callWebhook(ctx, batch)
		if err != nil {
			return nil, conversionError(in[0], "failed: %v", err)
		}
		if len(answers) != len(batch) {
			return nil, conversionError(in[0], "returned %d objects, expected %d", len(answers), len(batch))
		}
		for i := range answers {
			o, err := v.accept(in[i], &answers[i])
			if err != nil {
				return nil, conversionError(in[i], "returned invalid object at index %d: %v", i, err)
			}
			out = append(out, o)
		}
		in = in[len(batch):]
	}
	return out, nil
}

// conversionError returns the error of a conversion of o. As upstream, it has no reason, whatever code the webhook
// returns.
func conversionError(o *Object, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Message: fmt.Sprintf("conversion webhook for %v "+format, append([]any{o.GroupVersionKind()}, args...)...)}}
}

// withOwnDefaults returns an object with the defaults of its own version, in the form that the webhook gets.
func (v *Version) withOwnDefaults(o *Object) *Object {
	if o.version != nil {
		return o
	}
	for _, s := range v.siblings {
		if s.apiVersion == o.APIVersion {
			return s.show(o)
		}
	}
	return o
}

// callWebhook sends objects to the webhook and returns the converted objects.
func (v *Version) callWebhook(ctx context.Context, objects []runtime.RawExtension) ([]runtime.RawExtension, error) {
	w := v.webhook
	if w.version == "" {
		return nil, fmt.Errorf("no supported conversion review versions")
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	review := &apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{Kind: "ConversionReview", APIVersion: apiextensionsv1.GroupName + "/" + w.version},
		Request: &apiextensionsv1.ConversionRequest{UID: types.UID(uuid.NewString()), DesiredAPIVersion: v.apiVersion,
			Objects: objects},
	}
	answer := &apiextensionsv1.ConversionReview{}
	if err := w.client.Post(ctx, review, answer); err != nil {
		return nil, err
	}
	return responseObjects(review, answer)
}
