package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestBadDefinitions: a change of a good definition is refused with upstream's code, reason and field.
func TestBadDefinitions(t *testing.T) {
	t.Parallel()
	a := serve(t)
	good := definitionOf(
		`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"},"o":{"type":"object"}}}`)
	const (
		group, kind, plural, scope = `"group":"example.com"`, `"kind":"Bad"`, `"plural":"bads"`, `"scope":"Namespaced"`
		version, storage, schema   = `"name":"v1","served":true`, `"storage":true`, `"schema":{`
	)
	conversion := func(text string) string { return scope + `,"conversion":` + text }
	webhook := func(text string) string { return conversion(`{"strategy":"Webhook","webhook":{` + text + `}}`) }
	with := func(text string) string { return text + "," + schema }
	for _, c := range []struct{ old, new, want string }{
		{`"name":"bads.example.com"`, `"name":"other.example.com"`, "FieldValueInvalid metadata.name"},
		{`"name":"bads.example.com"`, `"name":"Bads.example.com"`, "FieldValueInvalid metadata.name"},
		{group, `"group":""`, "FieldValueRequired spec.group"},
		{group, `"group":"example"`, "FieldValueInvalid spec.group"},
		{group, `"group":"Example.com"`, "FieldValueInvalid spec.group"},
		{group, `"group":"x.k8s.io"`, "FieldValueInvalid metadata.name"},
		{scope, `"scope":""`, "FieldValueRequired spec.scope"},
		{scope, `"scope":"Everywhere"`, "FieldValueNotSupported spec.scope"},
		{scope, scope + `,"preserveUnknownFields":true`, "FieldValueInvalid spec.preserveUnknownFields"},
		{plural, `"plural":""`, "FieldValueRequired spec.names.plural"},
		{plural, `"plural":"Bads"`, "FieldValueInvalid spec.names.plural"},
		{kind, `"kind":""`, "FieldValueRequired spec.names.kind"},
		{kind, `"kind":"B_ad"`, "FieldValueInvalid spec.names.kind"},
		{kind, kind + `,"listKind":"Bad"`, "FieldValueInvalid spec.names.listKind"},
		{kind, kind + `,"listKind":"Bad_List"`, "FieldValueInvalid spec.names.listKind"},
		{kind, kind + `,"singular":"B_"`, "FieldValueInvalid spec.names.singular"},
		{kind, kind + `,"shortNames":["b","B_"]`, "FieldValueInvalid spec.names.shortNames[1]"},
		{kind, kind + `,"categories":["B_"]`, "FieldValueInvalid spec.names.categories[0]"},
		{version, `"name":"","served":true`, "FieldValueInvalid spec.versions[0].name"},
		{version, `"name":"V1","served":true`, "FieldValueInvalid spec.versions[0].name"},
		{storage, `"storage":false`, "FieldValueInvalid spec.versions"},
		{`"versions":[`,
			`"versions":[{"name":"v1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},`,
			"FieldValueInvalid spec.versions"},
		{`"versions":[`,
			`"versions":[{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},`,
			"FieldValueInvalid spec.versions"},
		{`"versions":[`, `"versions":[{"name":"v2","served":true,"storage":false},`,
			"FieldValueRequired spec.versions[0].schema.openAPIV3Schema"},
		{`"openAPIV3Schema":{"type":"object"`, `"openAPIV3Schema":{"type":"string"`, "FieldValueInvalid"},
		{`"openAPIV3Schema":{"type":"object"`, `"openAPIV3Schema":{"nullable":true,"type":"object"`, "FieldValueForbidden"},
		{`"properties":{"spec"`, `"properties":{"metadata":{"type":"string"},"spec"`, "FieldValueInvalid"},
		{`"properties":{"spec"`,
			`"properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object"}}},"spec"`,
			"FieldValueForbidden"},
		{schema, `"deprecationWarning":"old",` + schema, "FieldValueInvalid spec.versions[0].deprecationWarning"},
		{schema, `"deprecated":true,"deprecationWarning":"` + strings.Repeat("x", 257) + `",` + schema,
			"FieldValueInvalid spec.versions[0].deprecationWarning"},
		{scope, conversion(`{"strategy":""}`), "FieldValueRequired spec.conversion.strategy"},
		{scope, conversion(`{"strategy":"Magic"}`), "FieldValueNotSupported spec.conversion.strategy"},
		{scope, conversion(
			`{"strategy":"None","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://a"}}}`),
			"FieldValueForbidden spec.conversion.webhookClientConfig"},
		{scope, conversion(`{"strategy":"Webhook"}`), "FieldValueRequired spec.conversion.webhookClientConfig"},
		{scope, webhook(`"clientConfig":{"url":"https://a"}`), "FieldValueRequired spec.conversion.conversionReviewVersions"},
		{scope, webhook(`"conversionReviewVersions":["v9"],"clientConfig":{"url":"https://a"}`),
			"FieldValueInvalid spec.conversion.conversionReviewVersions"},
		{scope, webhook(`"conversionReviewVersions":["v1","v1"],"clientConfig":{"url":"https://a"}`),
			"FieldValueInvalid spec.conversion.conversionReviewVersions[1]"},
		{scope, webhook(`"conversionReviewVersions":["V_1"],"clientConfig":{"url":"https://a"}`),
			"FieldValueInvalid spec.conversion.conversionReviewVersions[0]"},
		{scope, webhook(`"conversionReviewVersions":["v1"],"clientConfig":{}`),
			"FieldValueRequired spec.conversion.webhookClientConfig"},
		{scope, webhook(
			`"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://a","service":{"name":"a","namespace":"b"}}`),
			"FieldValueRequired spec.conversion.webhookClientConfig"},
		{scope, webhook(`"conversionReviewVersions":["v1"],"clientConfig":{"url":"http://a"}`),
			"FieldValueInvalid spec.conversion.webhookClientConfig.url"},
		{scope, webhook(`"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://a?b=c"}`),
			"FieldValueInvalid spec.conversion.webhookClientConfig.url"},
		{scope, webhook(`"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://a#b"}`),
			"FieldValueInvalid spec.conversion.webhookClientConfig.url"},
		{scope, webhook(`"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://u:p@a"}`),
			"FieldValueInvalid spec.conversion.webhookClientConfig.url"},
		// sic: upstream confuses the two
		{scope, webhook(`"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"b"}}`),
			"FieldValueRequired spec.conversion.webhookClientConfig.service.namespace"},
		{scope, webhook(`"conversionReviewVersions":["v1"],"clientConfig":{"service":{"name":"a"}}`),
			"FieldValueRequired spec.conversion.webhookClientConfig.service.name"},
		{scope, webhook(
			`"conversionReviewVersions":["v1"],"clientConfig":{"service":{"name":"a","namespace":"b","port":70000}}`),
			"FieldValueInvalid spec.conversion.webhookClientConfig.service.port"},
		{scope, webhook(
			`"conversionReviewVersions":["v1"],"clientConfig":{"service":{"name":"a","namespace":"b","path":"x"}}`),
			"FieldValueInvalid spec.conversion.webhookClientConfig.service.path"},
		{schema, with(`"additionalPrinterColumns":[{"type":"string","jsonPath":".a"}]`),
			"FieldValueRequired .additionalPrinterColumns[0].name"},
		{schema, with(`"additionalPrinterColumns":[{"name":"A","jsonPath":".a"}]`),
			"FieldValueRequired .additionalPrinterColumns[0].type"},
		{schema, with(`"additionalPrinterColumns":[{"name":"A","type":"text","jsonPath":".a"}]`),
			"FieldValueInvalid .additionalPrinterColumns[0].type"},
		{schema, with(`"additionalPrinterColumns":[{"name":"A","type":"string","format":"x","jsonPath":".a"}]`),
			"FieldValueInvalid .additionalPrinterColumns[0].format"},
		{schema, with(`"additionalPrinterColumns":[{"name":"A","type":"string"}]`),
			"FieldValueRequired .additionalPrinterColumns[0].JSONPath"},
		{schema, with(`"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":"a"}]`),
			"FieldValueInvalid .additionalPrinterColumns[0].JSONPath"},
		{schema, with(`"subresources":{"scale":{"statusReplicasPath":".status.n"}}`),
			"FieldValueRequired .subresources.scale.specReplicasPath"},
		{schema, with(`"subresources":{"scale":{"specReplicasPath":".spec.n"}}`),
			"FieldValueRequired .subresources.scale.statusReplicasPath"},
		{schema, with(`"subresources":{"scale":{"specReplicasPath":".status.n","statusReplicasPath":".status.n"}}`),
			"FieldValueInvalid .subresources.scale.specReplicasPath"},
		{schema, with(`"subresources":{"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".spec.n"}}`),
			"FieldValueInvalid .subresources.scale.statusReplicasPath"},
		{schema, with(`"subresources":{"scale":{"specReplicasPath":"spec.n","statusReplicasPath":".status.n"}}`),
			"FieldValueInvalid .subresources.scale.specReplicasPath"},
		{schema, with(`"subresources":{"scale":{"specReplicasPath":".spec[0]","statusReplicasPath":".status.n"}}`),
			"FieldValueInvalid .subresources.scale.specReplicasPath"},
		{schema, with(
			`"subresources":{"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n",` +
				`"labelSelectorPath":".metadata.x"}}`), "FieldValueInvalid .subresources.scale.labelSelectorPath"},
		{schema, with(`"selectableFields":[{}]`), "FieldValueRequired .selectableFields[0].jsonPath"},
		{schema, with(`"selectableFields":[{"jsonPath":".spec.none"}]`), "FieldValueInvalid .selectableFields[0].jsonPath"},
		{schema, with(`"selectableFields":[{"jsonPath":".spec.o"}]`), "FieldValueInvalid .selectableFields[0].jsonPath"},
		{schema, with(`"selectableFields":[{"jsonPath":"spec.s"}]`), "FieldValueInvalid .selectableFields[0].jsonPath"},
		{schema, with(`"selectableFields":[{"jsonPath":".metadata.name"}]`),
			"FieldValueInvalid .selectableFields[0].jsonPath"},
		{schema, with(`"selectableFields":[{"jsonPath":".spec.s"},{"jsonPath":".spec.s"}]`),
			"FieldValueDuplicate .selectableFields[1].jsonPath"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("no %s in %s", c.old, good)
		}
		code, out := a.read("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All",
			strings.Replace(good, c.old, c.new, 1))
		causes := causesOf(out)
		reason, field, _ := strings.Cut(c.want, " ")
		fits := func(cause string) bool {
			return strings.HasPrefix(cause, reason+" ") && strings.HasSuffix(cause, field)
		}
		if code != http.StatusUnprocessableEntity || !slices.ContainsFunc(causes, fits) {
			t.Errorf("%s: %d, want %s, got %v\n%.300v", c.new, code, c.want, causes, out["message"])
		}
	}
	if code, out := a.read("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		good); code != http.StatusCreated {
		t.Errorf("the good definition: %d %v", code, out)
	}
}
