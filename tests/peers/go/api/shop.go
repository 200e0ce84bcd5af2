// Package api holds what provider and consumer share: the names on the wire and the object they exchange.
package api

import hessian "github.com/apache/dubbo-go-hessian2"

// The service, as the Java peers offer it too.
const (
	Interface = "shop.Shop"
	Group     = "g1"
	Version   = "1.0.0"
)

// Label is shop.Label.
type Label struct {
	Text  string   `hessian:"text"`
	Count int32    `hessian:"count"`
	Words []string `hessian:"words"`
}

// JavaClassName is the class on the wire.
func (Label) JavaClassName() string { return "shop.Label" }

func init() { hessian.RegisterPOJO(&Label{}) }
