import { useSignal } from '@preact/signals';
import type { NetworkInfo, Sandbox } from '../../../../sdk/src/index.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Button } from '../../ui/Button.tsx';
import { showHidden } from '../../ui/visible-text.ts';
import { Dialog } from '../../ui/Dialog.tsx';
import { SelectField } from '../../ui/Field.tsx';
import { Failure, Skeleton } from '../../ui/states.tsx';
import type { AllowChange } from '../network/allow-this.ts';
import { usePolicyModule, type PolicyModule } from '../network/load-policy-check.ts';
import { setNetworkCall } from '../network/network-calls.ts';
import { toNetworkOption } from '../network/policy-draft.ts';
import { describePolicy } from '../network/policy-words.ts';
import { RuleLists } from '../network/RuleList.tsx';
import { describeTarget, type Refused } from './refusals.ts';

interface AllowProps {
  sandbox: Sandbox;
  network: NetworkInfo;
  refused: Refused;
  onClose: () => void;
  onDone: (network: NetworkInfo) => void;
}

/** Asks before a refused connection is allowed: shows the rule, and the policy that follows. */
export function AllowThis(props: AllowProps) {
  const { module, error } = usePolicyModule();
  if (module !== undefined) return <Asked module={module} {...props} />;
  return (
    <Dialog title="Allow this" onClose={props.onClose}>
      {error === undefined ? <Skeleton rows={2} /> : <Failure error={error} />}
    </Dialog>
  );
}

function Asked({
  module,
  sandbox,
  network,
  refused,
  onClose,
  onDone,
}: AllowProps & { module: PolicyModule }) {
  const candidates = module.listCandidates(refused);
  const rule = useSignal(candidates[0] ?? '');
  const before = network.network;
  const trusted = [...before.allow, ...before.deny];
  const change = module.allowThis(before, refused, { rule: rule.value, trusted });
  const title = `Allow ${showHidden(describeTarget(refused))}`;
  if ('fault' in change)
    return (
      <Dialog title={title} onClose={onClose}>
        <RuleChoice candidates={candidates} value={rule.value} onValue={(value) => (rule.value = value)} />
        <p class="note warn">{change.fault}</p>
        <div class="dialog-foot">
          <Button onClick={onClose}>Close</Button>
        </div>
      </Dialog>
    );
  const { rules } = change;
  return (
    <ActionDialog
      title={title}
      verb="Apply"
      size="large"
      done="The policy is in force."
      act={async () => onDone(await sandbox.setNetwork(toNetworkOption(rules)))}
      onClose={onClose}
      code={setNetworkCall(sandbox.id, rules)}
    >
      <RuleChoice candidates={candidates} value={rule.value} onValue={(value) => (rule.value = value)} />
      <Difference change={change} />
      {network.networkProfile !== null && (
        <p class="hint">
          The sandbox then has rules of its own, no longer the profile {network.networkProfile}.
        </p>
      )}
      <div class="stack">
        <h3>The policy then</h3>
        <p>{describePolicy(rules)}</p>
        <RuleLists {...rules} />
      </div>
    </ActionDialog>
  );
}

interface ChoiceProps {
  candidates: readonly string[];
  value: string;
  onValue: (value: string) => void;
}

function RuleChoice({ candidates, value, onValue }: ChoiceProps) {
  if (candidates.length < 2) return null;
  return (
    <SelectField
      label="Allow by the rule"
      hint="The narrowest is first."
      value={value}
      options={candidates.map((rule) => [rule, showHidden(rule)])}
      onValue={onValue}
    />
  );
}

function Difference({ change: { added, removed } }: { change: AllowChange }) {
  if (added === undefined && removed.length === 0)
    return <p class="note good">The present policy allows this already. Nothing has to change.</p>;
  return (
    <div class="stack">
      {added !== undefined && (
        <p>
          Adds to Allow: <span class="rule good">{showHidden(added)}</span>
        </p>
      )}
      {removed.length > 0 && (
        <p>
          Removes from Deny:{' '}
          {removed.map((rule) => (
            <span key={rule} class="rule removed">
              {rule}
            </span>
          ))}{' '}
          {removed.some((rule) => rule !== added) && (
            <span class="soft">Everything else that it matches is no longer denied.</span>
          )}
        </p>
      )}
    </div>
  );
}
