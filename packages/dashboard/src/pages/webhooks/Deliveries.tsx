import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { DeliveryAttempt, DeliveryInfo, WebhookInfo } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { formatDuration, formatMoment, formatNumber } from '../../ui/format.ts';
import { Card } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { showHidden, showHiddenInLines } from '../../ui/visible-text.ts';
import { listDeliveriesCall, retryCall } from './webhook-calls.ts';
import { findNextReadMs, toneOf } from './webhook-words.ts';
import { Segments, toOptions } from '../../ui/Segments.tsx';

type StateFilter = 'all' | DeliveryInfo['state'];

const FILTERS: readonly StateFilter[] = ['all', 'pending', 'delivered', 'failed'];
const MAX_SHOWN = 100;

/** The newest messages of a webhook with their attempts. They are read again when an attempt is due to be over. */
export function Deliveries({ webhook, sent }: { webhook: WebhookInfo; sent: number }) {
  const { id, types, enabled } = webhook;
  const current = client.value;
  const filter = useSignal<StateFilter>('all');
  const state = filter.value === 'all' ? undefined : filter.value;
  const resource = useResource(
    async (signal) => (await current?.webhooks.deliveries(id, { state, limit: MAX_SHOWN, signal })) ?? [],
    [current, id, state],
    { concerns: ({ type }) => enabled && (types.length === 0 || types.includes(type)) },
  );
  const { value, reload } = resource;
  useEffect(() => {
    if (sent > 0) reload();
  }, [sent]);
  useEffect(() => {
    const ms = enabled ? findNextReadMs(value ?? [], Date.now()) : undefined;
    if (ms === undefined) return undefined;
    const timer = setTimeout(reload, ms);
    return () => clearTimeout(timer);
  }, [value, enabled]);
  return (
    <Card
      title="Deliveries"
      actions={
        <>
          <Segments
            label="State"
            options={toOptions(FILTERS)}
            value={filter.value}
            onValue={(entry) => (filter.value = entry)}
          />
          <CopyAsCode {...listDeliveriesCall(id)} />
        </>
      }
    >
      <Loaded resource={resource} rows={3}>
        {(deliveries) => <DeliveryList webhook={webhook} deliveries={deliveries} onChange={reload} />}
      </Loaded>
    </Card>
  );
}

interface ListProps {
  webhook: WebhookInfo;
  deliveries: readonly DeliveryInfo[];
  onChange: () => void;
}

function DeliveryList({ webhook, deliveries, onChange }: ListProps) {
  const retried = useSignal<DeliveryInfo | undefined>(undefined);
  if (deliveries.length === 0)
    return (
      <Empty icon="hook" title="Nothing was sent">
        Deliveries are kept for seven days. Send a test to see one.
      </Empty>
    );
  return (
    <>
      <div class="deliveries">
        {deliveries.map((delivery) => (
          <Delivery
            key={delivery.id}
            delivery={delivery}
            isPaused={!webhook.enabled}
            onRetry={() => (retried.value = delivery)}
          />
        ))}
      </div>
      {deliveries.length === MAX_SHOWN && (
        <p class="hint">The newest {formatNumber(MAX_SHOWN)} are shown. The API lists the others.</p>
      )}
      {retried.value !== undefined && (
        <RetryDelivery
          webhookId={webhook.id}
          deliveryId={retried.value.id}
          onClose={() => (retried.value = undefined)}
          onDone={onChange}
        />
      )}
    </>
  );
}

interface DeliveryProps {
  delivery: DeliveryInfo;
  /** The webhook is paused: what waits is not sent. */
  isPaused: boolean;
  onRetry: () => void;
}

function Delivery({ delivery, isPaused, onRetry }: DeliveryProps) {
  const { id, type, state, eventId, createdAt, nextAttemptAt, attempts } = delivery;
  const last = attempts.at(-1);
  return (
    <details class="delivery">
      <summary>
        <Badge tone={toneOf(state)}>{state}</Badge>
        <span class="mono delivery-type">{type}</span>
        <span class="soft delivery-result">
          {last === undefined ? 'no attempt yet' : describeResult(last)}
        </span>
        <span class="soft delivery-age">
          <Ago at={createdAt} />
        </span>
      </summary>
      <div class="delivery-body">
        <p class="soft">
          <span class="mono">{id}</span>
          {eventId === null ? ', a test' : `, event ${eventId}`}
          {state === 'pending' && isPaused && ', waits until the webhook is enabled'}
          {state === 'pending' && !isPaused && nextAttemptAt !== null && (
            <>
              {', next attempt '}
              <Ago at={nextAttemptAt} />
            </>
          )}
        </p>
        {attempts.length > 0 && (
          <ol class="attempts">
            {attempts.map((attempt) => (
              <Attempt key={attempt.attempt} attempt={attempt} />
            ))}
          </ol>
        )}
        {state !== 'pending' && (
          <div class="row">
            <Button icon="refresh" onClick={onRetry}>
              Send again
            </Button>
          </div>
        )}
      </div>
    </details>
  );
}

function Attempt({ attempt }: { attempt: DeliveryAttempt }) {
  const { attempt: number, startedAt, response } = attempt;
  return (
    <li>
      <span>
        <b>Attempt {number}</b>: {describeResult(attempt)} <span class="soft">{formatMoment(startedAt)}</span>
      </span>
      {response !== '' && (
        <pre class="code" tabIndex={0} aria-label={`Answer to attempt ${number}`}>
          {showHiddenInLines(response)}
        </pre>
      )}
    </li>
  );
}

function describeResult({ status, error, durationMs }: DeliveryAttempt): string {
  const parts = [status === null ? undefined : `HTTP ${status}`, error, `in ${formatDuration(durationMs)}`];
  return showHidden(parts.filter((part) => part !== undefined && part !== null).join(', '));
}

interface RetryProps {
  webhookId: string;
  deliveryId: string;
  onClose: () => void;
  onDone: () => void;
}

function RetryDelivery({ webhookId, deliveryId, onClose, onDone }: RetryProps) {
  return (
    <ActionDialog
      title="Send again"
      verb="Send"
      done="The message is on its way."
      act={() => requireClient().webhooks.retry(webhookId, deliveryId)}
      onClose={onClose}
      onDone={onDone}
      code={retryCall(webhookId, deliveryId)}
    >
      <p>The message is sent once more, with the same id and all its attempts.</p>
    </ActionDialog>
  );
}
