// Package webhooks calls admission webhooks.
//
//   - Hooks: the webhooks of all configurations, in the order in which they are called.
//   - dispatcher: one request and the calls for it.
//
// Without a webhook, a request costs one atomic load.
package webhooks

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/admissionregistration"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/reload"
	"monopod/apiserver/registry/webhook"
)

// Config of Hooks.
type Config struct {
	match.Config
	reload.Follower
	// Dial connects to webhooks; nil: the system does.
	Dial webhook.Dial
}

// Hooks contains the configured webhooks.
type Hooks struct {
	cfg        Config
	log        *failureLog
	configured atomic.Pointer[hookLists] // nil: no webhook is configured
	mu         sync.Mutex                // guards compiled, and serializes changes of configured
	compiled   map[string][]*hook        // by UID and resourceVersion of the configuration
}

type hookLists struct{ mutating, validating []*hook }

// hook is one compiled webhook.
type hook struct {
	admissionregistration.Hook
	configuration string
	id            string // unique
	client        *webhook.Client
	rules         []admissionv1.NamedRuleWithOperations
	selectors     match.Selectors
	conditions    func() plugincel.ConditionEvaluator
}

// New returns Hooks without webhooks.
func New(cfg Config) *Hooks {
	return &Hooks{cfg: cfg, compiled: map[string][]*hook{},
		log: &failureLog{clock: cfg.Clock, log: cfg.Log, byWebhook: map[string]*webhookFailures{}}}
}

const mutatingName = "MutatingAdmissionWebhook"

// Plugins returns the plugins that call the webhooks.
func (h *Hooks) Plugins() admission.Chain {
	return admission.Chain{
		{Name: mutatingName, Mutate: h.mutate},
		{Name: "ValidatingAdmissionWebhook", Validate: h.validate},
	}
}

// Configuration returns the kinds that configure the webhooks.
func (h *Hooks) Configuration() reload.Configuration {
	return reload.Configuration{Follower: h.cfg.Follower, Load: h.Load,
		Kinds: []schema.GroupVersionResource{client.MutatingWebhookConfigurations, client.ValidatingWebhookConfigurations}}
}

// Any reports whether a webhook is configured.
func (h *Hooks) Any() bool { return h.configured.Load() != nil }

// AnyMutating reports whether a mutating webhook is configured.
func (h *Hooks) AnyMutating() bool {
	now := h.configured.Load()
	return now != nil && len(now.mutating) > 0
}

// Load reads the configurations. The caller must call it after each change of one.
func (h *Hooks) Load(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := map[string][]*hook{}
	mutating, err := h.list(ctx, known, client.Selector{Resource: client.MutatingWebhookConfigurations})
	if err != nil {
		return err
	}
	validating, err := h.list(ctx, known, client.Selector{Resource: client.ValidatingWebhookConfigurations})
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, hook := range slices.Concat(mutating, validating) {
		names[hook.Name] = true
	}
	h.log.retain(names)
	if len(names) == 0 {
		h.configured.Store(nil)
	} else {
		h.configured.Store(&hookLists{mutating, validating})
	}
	for key, hooks := range h.compiled {
		if known[key] == nil {
			for _, hook := range hooks {
				hook.client.Close()
			}
		}
	}
	h.compiled = known
	return nil
}

// list returns the webhooks of a kind by the names of their configurations, and adds them to compiled.
func (h *Hooks) list(ctx context.Context, known map[string][]*hook, of client.Selector) (out []*hook, err error) {
	configurations, _, err := h.cfg.API.List(ctx, of)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(configurations, func(a, b kind.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for _, c := range configurations {
		key := string(c.GetUID()) + "/" + c.GetResourceVersion()
		hooks := h.compiled[key]
		if hooks == nil {
			hooks = h.compile(c)
		}
		known[key] = hooks
		out = append(out, hooks...)
	}
	return out, nil
}

// compile returns the webhooks of a configuration.
func (h *Hooks) compile(c kind.Object) []*hook {
	all := admissionregistration.Of(c)
	out := make([]*hook, len(all))
	for i := range all {
		hook := &hook{Hook: all[i], configuration: c.GetName(), id: string(c.GetUID()) + "/" + all[i].Name}
		for _, r := range hook.Rules {
			hook.rules = append(hook.rules, admissionv1.NamedRuleWithOperations{RuleWithOperations: r})
		}
		hook.selectors = match.NewSelectors(hook.NamespaceSelector, hook.ObjectSelector)
		hook.client = webhook.New(
			webhook.TargetOf(hook.ClientConfig.URL, hook.ClientConfig.Service, hook.ClientConfig.CABundle),
			webhook.Network{API: h.cfg.API, Dial: h.cfg.Dial})
		hook.conditions = sync.OnceValue(func() plugincel.ConditionEvaluator {
			return admissionregistration.CompileConditions(hook.MatchConditions)
		})
		out[i] = hook
	}
	return out
}

// ignores reports whether the failurePolicy is Ignore.
func (h *hook) ignores() bool {
	return h.FailurePolicy != nil && *h.FailurePolicy == admissionv1.Ignore
}
