import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { BLOCK_REASONS } from '../../../../contract/src/network-policy/block-reason.ts';
import type { EventInfo, NetworkInfo, Sandbox } from '../../../../sdk/src/index.ts';
import { onEvents } from '../../service/live-events.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { formatNumber } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Card } from '../../ui/Page.tsx';
import { Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { usePolicyModule } from '../network/load-policy-check.ts';
import { AllowThis } from './AllowThis.tsx';
import {
  addRefusals,
  describeTarget,
  NO_REFUSALS,
  REFUSAL_EVENT,
  type Refusals,
  type Refused,
} from './refusals.ts';

interface RefusalsProps {
  sandbox: Sandbox;
  /** The present policy; undefined if the sandbox has ended, and nothing can be allowed any more. */
  network?: NetworkInfo;
  onChange?: (network: NetworkInfo) => void;
}

/** Events of a sandbox that are read at most. It has one a second at most, and they are kept for a week. */
const MAX_EVENTS = 5000;

/** Refused connections, as they happen. */
export function RefusalsCard({ sandbox, network, onChange }: RefusalsProps) {
  const allowed = useSignal<Refused | undefined>(undefined);
  const { resource, refusals } = useRefusals(sandbox.id);
  const isAllowed = useAllowedNow(network);
  return (
    <Card title="Refused connections">
      <Loaded resource={resource} rows={2}>
        {() =>
          refusals.kinds.length === 0 ? (
            <p class="soft">Nothing was refused. Connections that the policy refuses show up here at once.</p>
          ) : (
            <>
              <ul class="lines" aria-label="Refused connections" aria-live="polite">
                {refusals.kinds.map((refused) => (
                  <RefusedLine
                    key={refused.key}
                    refused={refused}
                    isAllowed={isAllowed(refused)}
                    onAllow={network === undefined ? undefined : () => (allowed.value = refused)}
                  />
                ))}
              </ul>
              {refusals.leftOut > 0 && (
                <p class="hint">
                  {formatNumber(refusals.leftOut)} more were refused, to other destinations. The audit log has
                  each.
                </p>
              )}
            </>
          )
        }
      </Loaded>
      {allowed.value !== undefined && network !== undefined && (
        <AllowThis
          sandbox={sandbox}
          network={network}
          refused={allowed.value}
          onClose={() => (allowed.value = undefined)}
          onDone={(changed) => onChange?.(changed)}
        />
      )}
    </Card>
  );
}

interface LineProps {
  refused: Refused;
  /** The present policy would allow it. */
  isAllowed: boolean;
  onAllow: (() => void) | undefined;
}

function RefusedLine({ refused, isAllowed, onAllow }: LineProps) {
  const { domain, ip, reason, count, lastAt } = refused;
  return (
    <li class="line">
      <span class="line-main">
        <span class="refusal-target">
          <GuestText text={describeTarget(refused)} />
        </span>
        <span class="soft">
          {explainReason(reason)}
          {domain !== undefined && ip !== undefined && (
            <>
              {' Address '}
              <GuestText text={ip} />.
            </>
          )}
        </span>
      </span>
      <span class="soft">
        <Ago at={lastAt} />
      </span>
      <span class="refusal-count" title="How often">
        {formatNumber(count)}×
      </span>
      {isAllowed ? (
        <Badge tone="good">allowed now</Badge>
      ) : (
        onAllow !== undefined && <Button onClick={onAllow}>Allow this</Button>
      )}
    </li>
  );
}

function explainReason(reason: string): string {
  return Object.hasOwn(BLOCK_REASONS, reason) ? BLOCK_REASONS[reason as keyof typeof BLOCK_REASONS] : reason;
}

/** Returns a function that tells which refusals the policy would not repeat. It knows none until the judge is loaded. */
function useAllowedNow(info: NetworkInfo | undefined): (refused: Refused) => boolean {
  const { module } = usePolicyModule();
  return useMemo(() => {
    if (module === undefined || info === undefined) return () => false;
    const { network } = info;
    const checked = module.checkPolicy(network, [...network.allow, ...network.deny]);
    return (refused: Refused) => module.isAllowedNow(checked, refused);
  }, [module, info]);
}

function useRefusals(id: string) {
  const current = client.value;
  const refusals = useSignal<Refusals>(NO_REFUSALS);
  const resource = useResource<readonly EventInfo[]>(
    async (signal) => {
      const options = { runId: id, types: [REFUSAL_EVENT], limit: MAX_EVENTS, signal };
      const events = (await current?.listEvents(options)) ?? [];
      refusals.value = addRefusals(refusals.value, events);
      return events;
    },
    [current, id],
    // Single events are added below; after a gap, the list has those that were missed.
    { concerns: () => false },
  );
  useEffect(() => {
    refusals.value = NO_REFUSALS;
    return onEvents((event) => {
      if (event?.runId === id) refusals.value = addRefusals(refusals.value, [event]);
    });
  }, [id]);
  return { resource, refusals: refusals.value };
}
