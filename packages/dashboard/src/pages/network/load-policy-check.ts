import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

export type PolicyModule = Awaited<ReturnType<typeof loadPolicyModule>>;

/** Loads the code of the service that judges connections, which the first pages do not need. */
async function loadPolicyModule() {
  await import('./without-compiled-code.ts');
  const [check, test, allow] = await Promise.all([
    import('./policy-check.ts'),
    import('./test-destination.ts'),
    import('./allow-this.ts'),
  ]);
  return { ...check, ...test, ...allow };
}

let loading: Promise<PolicyModule> | undefined;

/** Returns the module when it is loaded; undefined until then. */
export function usePolicyModule(): { module: PolicyModule | undefined; error: unknown } {
  const module = useSignal<PolicyModule | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  useEffect(() => {
    loading ??= loadPolicyModule();
    loading.then(
      (loaded) => (module.value = loaded),
      (fault: unknown) => {
        loading = undefined;
        error.value = fault;
      },
    );
  }, []);
  return { module: module.value, error: error.value };
}
