// Package request parses a request's path, query and headers: its object, verb, attributes for authorization, selectors
// and options.
package request
