import type { EventInfo } from '../../../sdk/src/index.ts';
import { describeEvent, type SentencePart } from './describe-event.ts';
import { GuestText } from './GuestText.tsx';

/** What happened, as a sentence with links. The first part of it is its subject. */
export function EventSentence({ event }: { event: Pick<EventInfo, 'type' | 'data'> }) {
  const [subject, ...rest] = describeEvent(event).sentence;
  return (
    <span class="sentence">
      <b>{subject === undefined ? event.type : <Part part={subject} />}</b>
      {rest.map((part, index) => (
        <Part key={index} part={part} />
      ))}
    </span>
  );
}

function Part({ part }: { part: SentencePart }) {
  if (typeof part === 'string') return <>{part}</>;
  const name = (
    <span class="mono">
      <GuestText text={part.name} />
    </span>
  );
  return part.href === undefined ? name : <a href={part.href}>{name}</a>;
}
