// Package request reads what a request asks for out of its path, query and headers:
// the object, the verb, the attributes that are authorized, selectors and options.
package request
