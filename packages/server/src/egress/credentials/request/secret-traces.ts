/** Whether a text of the service's answer would tell the guest its secret. */
import type { Secret } from '../../../lib/secret.ts';

/** A shorter one stands in other words by chance: it is looked for as a whole word. */
const MIN_PART_CHARACTERS = 8;
const WORD_BORDER = /[^\w+/=.~-]+/u;

/** `holds` is about one text; it looks for the forms in which a server would repeat what it was sent. */
export interface SecretTraces {
  holds: (text: string) => boolean;
}

/** `sent`: the value of the header that carries the secret, with its prefix. */
export function traceSecrets(secret: Secret, sent: Secret): SecretTraces {
  const bare = secret.reveal();
  const token = sent.reveal().replace(/^\S+ /u, '');
  const forms = [bare, token, encodeURIComponent(bare), Buffer.from(bare).toString('base64')];
  const parts = [...new Set(forms)].map((form) => form.toLowerCase());
  return {
    holds(text) {
      const folded = text.toLowerCase();
      return parts.some((part) =>
        part.length < MIN_PART_CHARACTERS ? hasWord(folded, part) : folded.includes(part),
      );
    },
  };
}

function hasWord(text: string, word: string): boolean {
  return text === word || text.split(WORD_BORDER).includes(word);
}
