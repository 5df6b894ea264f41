import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { NetworkProfile } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import '../../styles/resources.css';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Card, Page } from '../../ui/Page.tsx';
import { Loaded } from '../../ui/states.tsx';
import { createWithPolicyCall, LIST_PROFILES } from './network-calls.ts';
import {
  EMPTY_DRAFT,
  isSameRules,
  toDraft,
  toNetworkOption,
  toRules,
  type PolicyDraft,
  type Rules,
} from './policy-draft.ts';
import { describePolicy } from './policy-words.ts';
import { PolicyEditor } from './PolicyEditor.tsx';
import { RuleLists } from './RuleList.tsx';

/** `/network` */
export function Network() {
  const current = client.value;
  const draft = useSignal<PolicyDraft>(EMPTY_DRAFT);
  const resource = useResource(
    async (signal) => (await current?.networkProfiles({ signal })) ?? [],
    [current],
  );
  const profiles = resource.value ?? [];
  const trusted = useMemo(() => profiles.flatMap(({ allow, deny }) => [...allow, ...deny]), [resource.value]);
  const rules = toRules(draft.value);
  const profile = profiles.find((entry) => isSameRules(entry, rules));
  return (
    <Page
      title="Network"
      lead="A policy says to which hosts a sandbox may connect. Write one, try it, and create sandboxes with it."
    >
      <Card
        title="Policy editor"
        actions={
          <>
            <CopyButton text={JSON.stringify(toNetworkOption(rules), null, 2)} label="Copy as JSON">
              Copy JSON
            </CopyButton>
            <CopyAsCode {...createWithPolicyCall(profile?.name ?? rules)} />
          </>
        }
      >
        <PolicyEditor draft={draft} trusted={trusted} />
      </Card>
      <Card title="Profiles" actions={<CopyAsCode {...LIST_PROFILES} />}>
        <p class="soft">Policies with a name, which the operator of the service defines.</p>
        <Loaded resource={resource} rows={4}>
          {(list) => <Profiles profiles={list} onEdit={(chosen) => (draft.value = toDraft(chosen))} />}
        </Loaded>
      </Card>
    </Page>
  );
}

interface ProfilesProps {
  profiles: readonly NetworkProfile[];
  onEdit: (rules: Rules) => void;
}

function Profiles({ profiles, onEdit }: ProfilesProps) {
  const edit = (profile: NetworkProfile) => () => {
    onEdit(profile);
    document.querySelector('.policy-editor textarea')?.scrollIntoView({ block: 'center' });
  };
  return (
    <ul class="lines">
      {profiles.map((profile) => (
        <li key={profile.name} class="line">
          <details class="profile">
            <summary>
              <b>{profile.name}</b>
              <span class="soft">{profile.description ?? describePolicy(profile)}</span>
            </summary>
            <RuleLists {...profile} />
            <div class="row">
              <Button icon="settings" onClick={edit(profile)}>
                Open in the editor
              </Button>
              <CopyAsCode {...createWithPolicyCall(profile.name)} />
            </div>
          </details>
        </li>
      ))}
    </ul>
  );
}
