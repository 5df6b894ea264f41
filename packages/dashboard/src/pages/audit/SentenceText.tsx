import type { Sentence } from './sentence.ts';

/** Shows a sentence. Its values are text of their own: they cannot change the direction of the words around. */
export function SentenceText({ sentence }: { sentence: Sentence }) {
  return (
    <span class="sentence">
      {sentence.map((part, index) =>
        typeof part === 'string' ? part : <code key={index}>{part.value}</code>,
      )}
    </span>
  );
}

/** Shows a sentence that consists of a name. */
export function NameText({ sentence }: { sentence: Sentence }) {
  return (
    <span>
      {sentence.map((part, index) => (typeof part === 'string' ? part : <bdi key={index}>{part.value}</bdi>))}
    </span>
  );
}
