// Light, dark, or what the system says. The choice is kept in this browser.

import { icon, show } from "./dom.js";

const KEY = "lockgate-theme";
const ORDER = ["auto", "light", "dark"];
const ICONS = {
  auto: ["M12 3a9 9 0 1 0 0 18z", "M12 3a9 9 0 0 1 0 18"],
  light: ["M12 8a4 4 0 1 0 0 8a4 4 0 0 0 0-8", "M12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4"],
  dark: ["M20 14.5A8.5 8.5 0 1 1 9.5 4a7 7 0 0 0 10.5 10.5z"],
};

export function themeSwitch(button) {
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    show(button, icon(...ICONS[theme]));
    button.setAttribute("aria-label", `Theme: ${theme}`);
    button.title = `Theme: ${theme}`;
  };
  let theme = localStorage.getItem(KEY);
  if (!ORDER.includes(theme)) theme = "auto";
  apply(theme);
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    localStorage.setItem(KEY, theme);
    apply(theme);
  });
}
