import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { NetworkCounters, NetworkInfo } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { requireClient } from '../../service/require-client.ts';
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
  const { id, endedAt } = record;
  const resource = useResource((signal) => sandbox.network({ signal }), [id, endedAt], {
    // Refusals change the counters, and a resume clears them.
    concerns: ({ runId }) => runId === id,
  });
  const isOver = endedAt !== null;
  return (
    <div class="stack">
      <Loaded resource={resource} rows={4}>
        {(network) => (
          <>
            <PolicyCard
              id={id}
              network={network}
              isOver={isOver}
              reload={resource.reload}
              set={resource.set}
            />
            <RefusalsCard sandbox={sandbox} isOver={isOver} network={network} onChange={resource.set} />
          </>
        )}
      </Loaded>
      {!isOver && <CredentialsCard sandbox={sandbox} />}
    </div>
  );
}

interface PolicyCardProps {
  id: string;
  network: NetworkInfo;
  isOver: boolean;
  reload: () => void;
  set: (network: NetworkInfo) => void;
}

function PolicyCard({ id, network: info, isOver, reload, set }: PolicyCardProps) {
  const isOpen = useSignal(false);
  const { networkProfile, network, counters, warnings } = info;
  const trusted = useMemo(() => [...network.allow, ...network.deny], [network]);
  return (
    <Card
      title="Policy"
      actions={
        <>
          <IconButton icon="refresh" label="Read the counters again" onClick={reload} />
          <CopyAsCode {...getNetworkCall(id)} />
          {!isOver && (
            <Button icon="settings" onClick={() => (isOpen.value = true)}>
              Edit policy
            </Button>
          )}
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
          id={id}
          network={info}
          trusted={trusted}
          onClose={() => (isOpen.value = false)}
          onDone={set}
          apply={async (policy) => {
            const sandbox = await requireClient().sandboxes.get(id);
            if (sandbox === null) throw new Error('The sandbox has ended.');
            return sandbox.setNetwork(policy);
          }}
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
