import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { NoTeam } from '../pages/account/NoTeam.tsx';
import { Reauthenticate } from '../pages/account/Reauthenticate.tsx';
import { isReachable } from '../service/connection.ts';
import { client, sessionState } from '../service/session.ts';
import { IconButton } from '../ui/Button.tsx';
import { Icon } from '../ui/Icon.tsx';
import { AccountMenu } from './AccountMenu.tsx';
import { Navigation } from './Navigation.tsx';
import { PlaceMenu } from './PlaceMenu.tsx';
import { openQuickActions, QuickActions } from './QuickActions.tsx';

/** Pages that need no key, and so no team. */
const WITHOUT_TEAM = /^\/(?:people|settings|keys|audit|operator)(?:\/|$)/u;

/** The frame around all pages of a signed-in person. */
export function Shell({ children }: { children: ComponentChildren }) {
  const { path } = useLocation();
  const isMenuOpen = useSignal(false);
  useEffect(() => {
    isMenuOpen.value = false;
    scrollTo(0, 0);
  }, [path]);
  const isEmpty = client.value === undefined && !WITHOUT_TEAM.test(path);
  return (
    <div class="shell" data-menu={isMenuOpen.value ? 'open' : 'closed'}>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="topbar">
        <span class="only-narrow">
          <IconButton
            icon={isMenuOpen.value ? 'close' : 'menu'}
            label={isMenuOpen.value ? 'Close the menu' : 'Open the menu'}
            attributes={{ 'aria-expanded': isMenuOpen.value }}
            onClick={() => (isMenuOpen.value = !isMenuOpen.value)}
          />
        </span>
        <a class="brand" href="/sandboxes">
          <img src="/icon.svg" alt="" width="24" height="24" />
          <span>Coppice</span>
        </a>
        <PlaceMenu />
        <span class="gap" />
        <button class="search-button" type="button" onClick={openQuickActions}>
          <Icon name="search" size={16} />
          <span>Search or jump to…</span>
          <kbd>Ctrl K</kbd>
        </button>
        <AccountMenu />
      </header>
      <Navigation />
      <main id="main" class="content" tabIndex={-1}>
        {!isReachable.value && (
          <p class="banner" role="status">
            <span class="spinner" aria-hidden="true" /> The service cannot be reached. The page shows the last
            known state and continues by itself.
          </p>
        )}
        {isEmpty ? <NoTeam /> : children}
      </main>
      <QuickActions />
      {sessionState.value === 'expired' && <Reauthenticate />}
    </div>
  );
}
