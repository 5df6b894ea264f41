/** Ctrl-K: jumps to a page or a sandbox, or begins an action, by a few letters. */
import { signal, useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useEffect, useRef } from 'preact/hooks';
import { isOperator } from '../service/session.ts';
import { sandboxes } from '../service/sandboxes.ts';
import { Dialog } from '../ui/Dialog.tsx';
import { formatImage } from '../ui/format.ts';
import { Icon } from '../ui/Icon.tsx';
import { rankActions, type QuickAction } from './rank-actions.ts';
import { listSections } from './sections.ts';

const MAX_SHOWN = 12;

const isOpen = signal(false);

export function openQuickActions(): void {
  isOpen.value = true;
}

export function QuickActions() {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'k') return;
      // A terminal has its own Ctrl-K.
      if (event.target instanceof Element && event.target.closest('.xterm') !== null && event.ctrlKey) return;
      event.preventDefault();
      isOpen.value = !isOpen.value;
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return isOpen.value ? <Palette /> : null;
}

function Palette() {
  const { route } = useLocation();
  const query = useSignal('');
  const chosen = useSignal(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const found = rankActions(listActions(), query.value).slice(0, MAX_SHOWN);
  const index = Math.min(chosen.value, Math.max(0, found.length - 1));
  const go = (action: QuickAction | undefined): void => {
    if (action === undefined) return;
    isOpen.value = false;
    route(action.href);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      chosen.value = (index + step + found.length) % Math.max(1, found.length);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      go(found[index]);
    }
  };
  return (
    <Dialog title="Quick actions" onClose={() => (isOpen.value = false)}>
      <input
        ref={input}
        class="palette-input"
        type="text"
        role="combobox"
        aria-label="Search pages, sandboxes and actions"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={found.length === 0 ? undefined : `palette-${index}`}
        placeholder="Type a page, a sandbox or an action"
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => {
          query.value = event.currentTarget.value;
          chosen.value = 0;
        }}
        onKeyDown={onKeyDown}
      />
      <div id="palette" class="palette" role="listbox" aria-label="Results">
        {found.map((action, position) => (
          <div
            key={action.href}
            id={`palette-${position}`}
            role="option"
            aria-selected={position === index}
            onClick={() => go(action)}
          >
            <Icon name={action.icon} size={16} />
            <span>{action.label}</span>
            {action.note !== undefined && <span class="soft">{action.note}</span>}
          </div>
        ))}
        {found.length === 0 && <p class="soft">Nothing has these letters.</p>}
      </div>
    </Dialog>
  );
}

function listActions(): QuickAction[] {
  return [
    { label: 'Create a sandbox', href: '/sandboxes/new', icon: 'plus', words: 'new run start' },
    { label: 'Create an API key', href: '/keys?new', icon: 'plus', words: 'new token' },
    { label: 'Invite a person', href: '/people?invite', icon: 'plus', words: 'new member' },
    { label: 'Your account', href: '/settings', icon: 'settings', words: 'password sessions' },
    ...listSections(isOperator.value).flatMap(({ sections }) => sections),
    ...(sandboxes.value ?? []).map(({ id, name, image, status }) => ({
      label: name ?? id,
      href: `/sandboxes/${id}`,
      icon: 'terminal' as const,
      words: `${id} ${image}`,
      note: `${formatImage(image)} · ${status}`,
    })),
  ];
}
