// Command helm-check renders the chart with Helm's own engine and decodes every manifest strictly as the type of the
// Kubernetes API that it names: a field that this type lacks, or of another kind, is an error.
//
//	helm-check CHART [NAME=VALUE…]      values as those of "helm template --set"
//
// It prints the manifests as a JSON array. Other than the command "helm", it needs no client of a cluster.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var types = map[string]func() any{
	"apps/v1 DaemonSet":                  func() any { return &appsv1.DaemonSet{} },
	"apps/v1 Deployment":                 func() any { return &appsv1.Deployment{} },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return &networkingv1.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":      func() any { return &policyv1.PodDisruptionBudget{} },
	"v1 Secret":                          func() any { return &corev1.Secret{} },
	"v1 Service":                         func() any { return &corev1.Service{} },
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helm-check:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name the directory of a chart")
	}
	files, err := render(args[0], args[1:])
	if err != nil {
		return err
	}
	manifests := []any{}
	for _, name := range slices.Sorted(mapKeys(files)) {
		for _, text := range strings.Split(files[name], "\n---\n") {
			manifest, err := decode(text)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if manifest != nil {
				manifests = append(manifests, manifest)
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(manifests)
}

func mapKeys(files map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range files {
			if strings.HasSuffix(name, ".yaml") && !yield(name) {
				return
			}
		}
	}
}

// render returns the rendered templates by their names.
func render(directory string, settings []string) (map[string]string, error) {
	chart, err := loader.LoadDir(directory)
	if err != nil {
		return nil, err
	}
	if err := chart.Validate(); err != nil {
		return nil, err
	}
	values := map[string]any{}
	for _, setting := range settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
	}
	release := chartutil.ReleaseOptions{Name: "test", Namespace: "sandboxes", Revision: 1, IsInstall: true}
	rendered, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	strict := engine.Engine{Strict: true, LintMode: false}
	return strict.Render(chart, rendered)
}

// decode returns the manifest, or nil for a document without content.
func decode(text string) (any, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		return nil, err
	}
	if head.Kind == "" {
		return nil, nil
	}
	name := head.APIVersion + " " + head.Kind
	make, known := types[name]
	if !known {
		return nil, fmt.Errorf("%s: is not a type that this program knows", name)
	}
	manifest := make()
	if err := yaml.UnmarshalStrict([]byte(text), manifest); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return manifest, nil
}
