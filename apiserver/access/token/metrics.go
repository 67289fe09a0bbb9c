package token

import "github.com/prometheus/client_golang/prometheus"

// uses counts requests with a token, under upstream's names.
type uses struct {
	valid                              prometheus.Counter // not in a Secret
	legacy, generated, manual, invalid prometheus.Counter // in a Secret
}

func newUses() uses {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "serviceaccount_" + name, Help: help})
	}
	return uses{
		valid:  counter("valid_tokens_total", "Number of uses of service account tokens that no Secret contains."),
		legacy: counter("legacy_tokens_total", "Number of uses of service account tokens that a Secret contains."),
		generated: counter("legacy_auto_token_uses_total",
			"Number of uses of tokens in Secrets that the ServiceAccount lists."),
		manual: counter("legacy_manual_token_uses_total", "Number of uses of tokens in Secrets that users created."),
		invalid: counter("invalid_legacy_auto_token_uses_total",
			"Number of uses of tokens in Secrets that are invalid because they were not used for a long time."),
	}
}

// Collectors returns the metrics of the Issuer.
func (i *Issuer) Collectors() []prometheus.Collector {
	u := i.uses
	return []prometheus.Collector{u.valid, u.legacy, u.generated, u.manual, u.invalid}
}
