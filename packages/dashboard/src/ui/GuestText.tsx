import { splitHidden } from './visible-text.ts';
import '../styles/guest-text.css';

/** A name that a guest or a caller chose. Hidden characters are shown; it cannot turn the text around it. */
export function GuestText({ text }: { text: string }) {
  return (
    <bdi class="guest-text">
      {splitHidden(text).map(({ text: piece, isEscape }, index) =>
        isEscape ? (
          <span key={index} class="escape">
            {piece}
          </span>
        ) : (
          piece
        ),
      )}
    </bdi>
  );
}
