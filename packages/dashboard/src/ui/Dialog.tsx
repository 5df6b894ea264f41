import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { IconButton } from './Button.tsx';

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  size?: 'small' | 'large';
  /** The reader cannot leave it. */
  isFixed?: boolean;
}

/** A modal dialog. Show it by rendering it; Escape and its button call `onClose`. */
export function Dialog({ title, onClose, children, size = 'small', isFixed = false }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={`dialog ${size}`}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        if (!isFixed) onClose();
      }}
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || event.defaultPrevented || isInPopover(event.target)) return;
        // Left to itself, a browser closes a dialog and the one that it lies above by one key.
        event.preventDefault();
        event.stopPropagation();
        if (!isFixed) onClose();
      }}
      onClick={(event) => {
        // The backdrop belongs to the dialog's own element.
        if (event.target === ref.current && !isFixed) onClose();
      }}
    >
      <div class="dialog-inner">
        <header class="dialog-head">
          <h2 id={titleId}>{title}</h2>
          {!isFixed && <IconButton icon="close" label="Close" onClick={onClose} />}
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** The key closes the popover then, and not the dialog around it. */
function isInPopover(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest(':popover-open') !== null;
}
