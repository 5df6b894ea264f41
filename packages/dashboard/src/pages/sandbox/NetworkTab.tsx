import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { NetworkCounters, NetworkInfo, Sandbox } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import '../../styles/resources.css';
import { Badge } from '../../ui/Badge.tsx';
import { Button, IconButton } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { formatBytes, formatNumber } from '../../ui/format.ts';
import { Card, Facts } from '../../ui/Page.tsx';
import { Loaded } from '../../ui/states.tsx';
import { getNetworkCall } from '../network/network-calls.ts';
import { describePolicy } from '../network/policy-words.ts';
import { RuleLists } from '../network/RuleList.tsx';
import { CredentialsCard } from './CredentialsCard.tsx';
import { EditPolicy } from './EditPolicy.tsx';
import { RefusalsCard } from './RefusalsCard.tsx';
import type { TabProps } from './tab-props.ts';

/** The network of a sandbox: its policy, what it refuses, and the secrets that the host adds to requests. */
export function NetworkTab({ sandbox, record }: TabProps) {
  return record.endedAt === null ? (
    <LiveNetwork sandbox={sandbox} id={record.id} />
  ) : (
    <div class="stack">
      <p class="note">The sandbox has ended. Its audit log has the changes of its policy.</p>
      <RefusalsCard sandbox={sandbox} />
    </div>
  );
}

function LiveNetwork({ sandbox, id }: { sandbox: Sandbox; id: string }) {
  const resource = useResource((signal) => sandbox.network({ signal }), [id], {
    // Refusals change the counters, and a resume clears them.
    concerns: ({ runId }) => runId === id,
  });
  const { reload, set } = resource;
  return (
    <div class="stack">
      <Loaded resource={resource} rows={4}>
        {(network) => (
          <>
            <PolicyCard sandbox={sandbox} network={network} reload={reload} set={set} />
            <RefusalsCard sandbox={sandbox} network={network} onChange={set} />
          </>
        )}
      </Loaded>
      <CredentialsCard sandbox={sandbox} />
    </div>
  );
}

interface PolicyCardProps {
  sandbox: Sandbox;
  network: NetworkInfo;
  reload: () => void;
  set: (network: NetworkInfo) => void;
}

function PolicyCard({ sandbox, network: info, reload, set }: PolicyCardProps) {
  const isOpen = useSignal(false);
  const { networkProfile, network, counters, warnings } = info;
  const trusted = useMemo(() => [...network.allow, ...network.deny], [network]);
  return (
    <Card
      title="Policy"
      actions={
        <>
          <IconButton icon="refresh" label="Read the counters again" onClick={reload} />
          <CopyAsCode {...getNetworkCall(sandbox.id)} />
          <Button icon="settings" onClick={() => (isOpen.value = true)}>
            Edit policy
          </Button>
        </>
      }
    >
      <p class="row">
        {networkProfile !== null && <Badge>{networkProfile}</Badge>}
        {describePolicy(network)}
      </p>
      {warnings.length > 0 && (
        <ul class="note warn warnings">
          {warnings.map((warning) => (
            <li key={warning}>{warning}</li>
          ))}
        </ul>
      )}
      <RuleLists {...network} />
      {counters === null ? (
        <p class="soft">There are no counters now: they count while the sandbox runs.</p>
      ) : (
        <Counters counters={counters} />
      )}
      {isOpen.value && (
        <EditPolicy
          id={sandbox.id}
          network={info}
          trusted={trusted}
          onClose={() => (isOpen.value = false)}
          onDone={set}
          apply={(policy) => sandbox.setNetwork(policy)}
        />
      )}
    </Card>
  );
}

function Counters({ counters }: { counters: NetworkCounters }) {
  const { connectionsOpen, connectionsAllowed } = counters;
  const uncounted = 'not counted';
  return (
    <Facts
      facts={[
        ['Open connections', connectionsOpen === null ? uncounted : formatNumber(connectionsOpen)],
        ['Allowed', connectionsAllowed === null ? uncounted : formatNumber(connectionsAllowed)],
        ['Refused', formatNumber(counters.connectionsBlocked)],
        ['Sent', formatBytes(counters.bytesSent)],
        ['Received', formatBytes(counters.bytesReceived)],
        ['Names resolved', formatNumber(counters.namesResolved)],
        ['Names refused', formatNumber(counters.namesRefused)],
        ['Requests with a credential', formatNumber(counters.requestsProxied)],
      ]}
    />
  );
}
