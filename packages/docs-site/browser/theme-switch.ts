/** The button that switches between light and dark. The choice is kept in this browser. */
export function addThemeSwitch(): void {
  const button = document.querySelector<HTMLButtonElement>('[data-theme-switch]');
  if (button === null) return;
  button.hidden = false;
  button.addEventListener('click', () => {
    const root = document.documentElement;
    const isDark =
      root.dataset['theme'] === undefined
        ? matchMedia('(prefers-color-scheme: dark)').matches
        : root.dataset['theme'] === 'dark';
    root.dataset['theme'] = isDark ? 'light' : 'dark';
    try {
      localStorage.setItem('coppice-docs-theme', root.dataset['theme']);
    } catch (error) {
      // A browser may forbid the storage; then the choice lasts for this page.
      console.debug(error);
    }
  });
}
