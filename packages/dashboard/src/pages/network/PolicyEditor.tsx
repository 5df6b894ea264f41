import type { Signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import '../../styles/network.css';
import { TextArea } from '../../ui/Field.tsx';
import { Failure, Skeleton } from '../../ui/states.tsx';
import { usePolicyModule, type PolicyModule } from './load-policy-check.ts';
import { toRules, type PolicyDraft } from './policy-draft.ts';
import { describePolicy } from './policy-words.ts';
import { PolicyTester } from './PolicyTester.tsx';

interface EditorProps {
  draft: Signal<PolicyDraft>;
  /** Rules that the service has accepted: they show which private ranges it has opened. */
  trusted: readonly string[];
}

/** Edits a policy, checks it as the service does, and tries connections under it. */
export function PolicyEditor({ draft, trusted }: EditorProps) {
  const { module, error } = usePolicyModule();
  const rules = toRules(draft.value);
  return (
    <div class="policy-editor">
      <div class="policy-rules">
        <p class="note">{describePolicy(rules)} A rule of Deny beats every rule of Allow.</p>
        <TextArea
          label="Allow"
          hint="One a line: api.example.com, *.example.com, 203.0.113.0/24, registry:npm. If there is any, the rest is refused."
          rows={6}
          value={draft.value.allow}
          onValue={(allow) => (draft.value = { ...draft.value, allow })}
        />
        <TextArea
          label="Deny"
          hint="The same kinds of rules. 0.0.0.0/0 refuses everything that is not allowed."
          rows={4}
          value={draft.value.deny}
          onValue={(deny) => (draft.value = { ...draft.value, deny })}
        />
      </div>
      {error !== undefined && <Failure error={error} />}
      {module === undefined ? (
        error === undefined && <Skeleton rows={3} />
      ) : (
        <CheckedRules module={module} draft={draft.value} trusted={trusted} />
      )}
    </div>
  );
}

interface CheckedProps {
  module: PolicyModule;
  draft: PolicyDraft;
  trusted: readonly string[];
}

function CheckedRules({ module, draft, trusted }: CheckedProps) {
  const checked = useMemo(() => module.checkPolicy(toRules(draft), trusted), [module, draft, trusted]);
  return (
    <div class="policy-check">
      {checked.fault !== undefined && (
        <div class="note bad" role="status">
          <b>The service would refuse these rules</b>
          <p>{checked.fault}</p>
        </div>
      )}
      {checked.warnings.length > 0 && (
        <div class="note warn" role="status">
          <b>Rules without effect</b>
          <ul class="warnings">
            {checked.warnings.map((warning) => (
              <li key={warning}>{warning}</li>
            ))}
          </ul>
        </div>
      )}
      <PolicyTester module={module} checked={checked} />
    </div>
  );
}
