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
