import { useSignal } from '@preact/signals';
import type { NetworkInfo, NetworkProfile, NetworkRules } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { SelectField } from '../../ui/Field.tsx';
import { setNetworkCall } from '../network/network-calls.ts';
import { isSameRules, toDraft, toNetworkOption, toRules, type PolicyDraft } from '../network/policy-draft.ts';
import { PolicyEditor } from '../network/PolicyEditor.tsx';

const OWN = '';

interface EditProps {
  id: string;
  network: NetworkInfo;
  trusted: readonly string[];
  apply: (policy: NetworkRules | string) => Promise<NetworkInfo>;
  onClose: () => void;
  onDone: (network: NetworkInfo) => void;
}

/** Edits the policy of a sandbox with the tester at hand, and applies it. */
export function EditPolicy({ id, network: before, trusted, apply, onClose, onDone }: EditProps) {
  const current = client.value;
  const draft = useSignal<PolicyDraft>(toDraft(before.network));
  const profiles =
    useResource(async (signal) => (await current?.networkProfiles({ signal })) ?? [], [current]).value ?? [];
  const rules = toRules(draft.value);
  const profile = findProfile(profiles, before, rules);
  const policy = profile ?? toNetworkOption(rules);
  const choose = (name: string): void => {
    const chosen = profiles.find((entry) => entry.name === name);
    if (chosen !== undefined) draft.value = toDraft(chosen);
  };
  return (
    <ActionDialog
      title="Network policy"
      verb="Apply"
      size="large"
      done="The policy is in force."
      act={async () => onDone(await apply(policy))}
      onClose={onClose}
      code={setNetworkCall(id, profile ?? rules)}
    >
      <p class="soft">It also holds for open connections: those that it refuses end.</p>
      <SelectField
        label="Profile"
        value={profile ?? OWN}
        options={[[OWN, 'Rules of its own'], ...profiles.map(({ name }) => [name, name] as const)]}
        onValue={choose}
      />
      <PolicyEditor draft={draft} trusted={trusted} />
    </ActionDialog>
  );
}

/** Returns the name of the profile that has these rules. Its present one wins over others with the same rules. */
function findProfile(
  profiles: readonly NetworkProfile[],
  before: NetworkInfo,
  rules: ReturnType<typeof toRules>,
): string | undefined {
  const same = profiles.filter((entry) => isSameRules(entry, rules)).map(({ name }) => name);
  return same.find((name) => name === before.networkProfile) ?? same[0];
}
