import { useSignal } from '@preact/signals';
import type { EventInfo } from '../../../../sdk/src/index.ts';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { describeEvent } from '../../ui/describe-event.ts';
import { EventSentence } from '../../ui/EventSentence.tsx';
import { formatMoment, formatNumber } from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Button } from '../../ui/Button.tsx';
import { Empty, Failure, Skeleton } from '../../ui/states.tsx';
import { showHiddenInLines } from '../../ui/visible-text.ts';
import { EVENT_GROUPS, groupOf, MAX_KEPT, type EventGroup } from './events/event-log.ts';
import { useEventLog } from './events/use-event-log.ts';
import type { TabProps } from './tab-props.ts';
import { Segments, toOptions } from '../../ui/Segments.tsx';
import '../../styles/events.css';

/** Rows have no fixed height, so all that are shown are in the document. */
const FIRST_SHOWN = 100;

export function EventsTab({ record }: TabProps) {
  const { events, isComplete, error, reload } = useEventLog(record.id);
  const group = useSignal<EventGroup>('all');
  const shown = (events ?? []).filter(({ type }) => group.value === 'all' || groupOf(type) === group.value);
  return (
    <div class="stack">
      <div class="filters">
        <Segments
          label="Kind of event"
          options={toOptions(EVENT_GROUPS)}
          value={group.value}
          onValue={(name) => (group.value = name)}
        />
        <span class="soft" role="status">
          {events !== undefined && countText(shown.length, isComplete)}
        </span>
        <span class="gap" />
        <CopyAsCode
          method="GET"
          path={`/v1/events?run_id=${record.id}`}
          typescript={`for await (const event of client.listEvents({ runId: '${record.id}' })) console.log(event);`}
          python={`for event in client.list_events(run_id="${record.id}"):\n    print(event)`}
        />
      </div>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {events === undefined || (shown.length === 0 && !isComplete) ? (
        error === undefined && <Skeleton rows={6} />
      ) : shown.length === 0 ? (
        <Nothing isFiltered={events.length > 0} />
      ) : (
        <Timeline key={group.value} events={shown} />
      )}
    </div>
  );
}

function countText(count: number, isComplete: boolean): string {
  if (count >= MAX_KEPT) return `The latest ${formatNumber(count)}`;
  return `${formatNumber(count)} ${count === 1 ? 'event' : 'events'}${isComplete ? '' : ', reading more'}`;
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered ? (
    <Empty icon="search" title="No event of this kind">
      Choose another kind.
    </Empty>
  ) : (
    <Empty icon="log" title="No events">
      Events are kept for 7 days. New ones appear here as they happen.
    </Empty>
  );
}

function Timeline({ events }: { events: readonly EventInfo[] }) {
  const count = useSignal(FIRST_SHOWN);
  const left = events.length - count.value;
  return (
    <>
      <ol class="timeline" aria-label="Events, newest first">
        {events.slice(0, count.value).map((event) => (
          <Entry key={event.id} event={event} />
        ))}
      </ol>
      {left > 0 && (
        <div class="row">
          <Button onClick={() => (count.value += FIRST_SHOWN)}>
            {`Show ${formatNumber(Math.min(left, FIRST_SHOWN))} older`}
          </Button>
          <span class="soft">{formatNumber(left)} older events</span>
        </div>
      )}
    </>
  );
}

function Entry({ event }: { event: EventInfo }) {
  const { icon, tone } = describeEvent(event);
  return (
    <li class="timeline-entry">
      <span class={`timeline-icon ${tone}`}>
        <Icon name={icon} size={16} />
      </span>
      <div class="timeline-text">
        <EventSentence event={event} />
        <details>
          <summary>
            <time dateTime={event.timestamp}>{formatMoment(event.timestamp)}</time>
            <span class="mono">{event.type}</span>
          </summary>
          <pre class="code" tabIndex={0}>
            <code>{showHiddenInLines(JSON.stringify(event, undefined, 2))}</code>
          </pre>
        </details>
      </div>
    </li>
  );
}
